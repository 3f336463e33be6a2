"""Data mixtures: several data sets that are trained on as one, each with a weight, or parts of them.

A weight is how often each pair of a data set is used in an epoch, on average: `old@0.3` uses three of ten pairs in each
epoch, others in the next, and each pair once before any is used twice. A part is a random choice of pairs, the same in
all epochs: `new#0.1` uses one of ten pairs and never the others. Of two parts, the larger contains the smaller.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.corpus.dataset import TOKENIZER_FILE, DataSet, Split, TextCounts
from dragoman.corpus.shards import Pairs
from dragoman.errors import DragomanError

MAX_WEIGHT = 1000
"""Largest weight of a data set: a larger one is a mistake, and its epoch would not fit into memory."""
DataArgument = str | Path
"""`DATA`, `DATA@WEIGHT`, `DATA#PART` or `DATA#PART@WEIGHT`."""


@dataclass(frozen=True)
class WeightedPath:
    """The path of a data set, how often each pair is used in an epoch, and which part of the pairs is used at all."""

    path: Path
    weight: Decimal = Decimal(1)
    part: Decimal = Decimal(1)

    def __str__(self) -> str:
        part = "" if self.part == 1 else f"#{self.part:f}"
        return f"{self.path}{part}" if self.weight == 1 else f"{self.path}{part}@{self.weight:f}"


def parse_data(argument: DataArgument) -> WeightedPath:
    """Parse `DATA`, with a part and a weight if it has them. An existing folder of that name is preferred."""
    folder, weight = _split_number(str(argument), "@")
    folder, part = _split_number(folder, "#")
    if not weight:
        raise DragomanError(f"--data {argument}: the weight is not above 0: write for example @0.3, or leave it out.")
    if weight > MAX_WEIGHT:
        raise DragomanError(f"--data {argument}: the weight is above {MAX_WEIGHT:,}: write for example @3.")
    if not 0 < part <= 1:
        raise DragomanError(f"--data {argument}: the part is not above 0 and at most 1: write for example #0.1.")
    return WeightedPath(Path(folder), weight, part)


def parse_parts(parts: Sequence[float]) -> list[Decimal]:
    """The parts of a learning curve, the smallest first."""
    numbers = [Decimal(str(part)).normalize() for part in parts]
    wrong = [part for part, number in zip(parts, numbers, strict=True) if not (number.is_finite() and 0 < number <= 1)]
    wrong += [part for part, number in zip(parts, numbers, strict=True) if numbers.count(number) > 1]
    if wrong or not numbers:
        raise DragomanError(
            f"parts {', '.join(map(str, parts))}: each must be above 0 and at most 1, and given once: write for "
            "example 0.1,0.33,1."
        )
    return sorted(numbers)


def _split_number(argument: str, sign: str) -> tuple[str, Decimal]:
    """What is before and after the last sign; 1 if no number follows it."""
    match = re.fullmatch(rf"(.+){sign}(\d+\.?\d*|\.\d+)", argument)
    if match is None or Path(argument).exists():
        return argument, Decimal(1)
    return match[1], Decimal(match[2]).normalize()


def parse_all(data: DataArgument | Sequence[DataArgument]) -> list[WeightedPath]:
    """Parse one argument of `--data`, or several."""
    return [parse_data(each) for each in ([data] if isinstance(data, str | Path) else data)]


def open_data(data: DataArgument | Sequence[DataArgument]) -> DataSet:
    """Open the data set to train on, or several as one. The validation set is that of the first."""
    parts = parse_all(data)
    opened = DataSet(parts[0].path) if parts == [WeightedPath(parts[0].path)] else MixedDataSet(parts)
    opened.pairs("valid")  # Raises an error that explains itself if there is none.
    return opened


class MixedPairs(Pairs):
    """The training pairs of several data sets, one after the other."""

    def __init__(self, parts: Sequence[Pairs], weights: Sequence[Decimal], used_parts: Sequence[Decimal] = ()) -> None:
        super().__init__([shard for pairs in parts for shard in pairs.shards])
        self._weights, self._sizes = weights, [len(pairs) for pairs in parts]
        used = used_parts or [Decimal(1)] * len(parts)
        self._used = [_used_pairs(part, size) for part, size in zip(used, self._sizes, strict=True)]
        """Pairs of each data set that are used at all: the first ones of its random order."""
        self._orders: dict[tuple[int, int], npt.NDArray[np.int32]] = {}

    def of_epoch(self, epoch: int, seed: int) -> npt.NDArray[np.int32]:
        """Indexes of the pairs of an epoch: of each data set the next ones in its random order, which has no end."""
        chosen, first = [], 0
        for number, (size, used, weight) in enumerate(zip(self._sizes, self._used, self._weights, strict=True)):
            start, stop = (int(epochs * weight * used) for epochs in (epoch, epoch + 1))
            chosen.append(first + self._order(seed, number)[np.arange(start, stop) % used])
            first += size
        return np.concatenate(chosen)

    def _order(self, seed: int, number: int) -> npt.NDArray[np.int32]:
        """The random order of a data set, the same in all epochs."""
        if (seed, number) not in self._orders:
            # The last number keeps it apart from the random numbers of the plans, which have two.
            random = np.random.default_rng([seed, number, 1])
            self._orders[seed, number] = random.permutation(self._sizes[number]).astype(np.int32)
        return self._orders[seed, number]


class MixedDataSet(DataSet):
    """Several data sets with the same languages and tokenizer. Everything but training pairs is that of the first."""

    def __init__(self, parts: Sequence[WeightedPath]) -> None:
        self._parts, self._opened = parts, _open_all(parts)
        first = self._opened[0]
        super().__init__(first.path)
        weighted = list(zip(self._opened, parts, strict=True))
        listing = "".join(f"{data.manifest.identity} {_describe_use(part)}\n" for data, part in weighted)
        self.manifest = replace(
            first.manifest,
            name=" + ".join(str(replace(part, path=Path(data.manifest.name))) for data, part in weighted),
            identity=hashlib.sha256(listing.encode()).hexdigest(),
            splits={**first.manifest.splits, "train": sum((_count(*each) for each in weighted), TextCounts())},
            sources=[source for data in self._opened for source in data.manifest.sources],
        )

    @property
    def arguments(self) -> list[str]:
        return [str(replace(part, path=part.path.resolve())) for part in self._parts]

    def pairs(self, split: Split) -> Pairs:
        return self._train if split == "train" else super().pairs(split)

    @cached_property
    def _train(self) -> MixedPairs:
        return MixedPairs(
            [data.pairs("train") for data in self._opened],
            [part.weight for part in self._parts],
            [part.part for part in self._parts],
        )


def _open_all(parts: Sequence[WeightedPath]) -> list[DataSet]:
    """Open all data sets of a mixture. Raises one error with all reasons why they cannot be mixed."""
    opened: list[DataSet] = []
    problems: list[str] = []
    for part in parts:
        try:
            opened.append(DataSet(part.path))
        except DragomanError as error:
            problems.append(str(error))
            continue
        problems += _find_differences(opened[-1], opened[0])
        pairs = opened[-1].manifest.splits["train"].pairs
        if part.weight * _used_pairs(part.part, pairs) < 1:
            problems.append(f"{part} uses none of its {pairs:,} pairs in an epoch: raise its weight.")
    if problems:
        what = "be mixed" if len(parts) > 1 else "be used with this weight"
        raise DragomanError("\n  ".join([f"The data cannot {what}, and nothing was written:", *problems]))
    return opened


def _find_differences(data: DataSet, first: DataSet) -> list[str]:
    """Reasons why a data set cannot be mixed with the first."""
    problems = []
    if data.languages != first.languages:
        problems.append(
            f"{data.path} is {data.languages.direction}, {first.path} is {first.languages.direction}: mix data sets of "
            "one direction."
        )
    if data.manifest.files[TOKENIZER_FILE].sha256 != first.manifest.files[TOKENIZER_FILE].sha256:
        problems.append(
            f"{data.path} and {first.path} have different tokenizers: prepare {data.path} again with `dragoman prepare "
            f"... --tokenizer {first.path / TOKENIZER_FILE}`."
        )
    return problems


def _describe_use(part: WeightedPath) -> str:
    return f"{part.weight:f}" if part.part == 1 else f"{part.weight:f} {part.part:f}"


def _count(data: DataSet, part: WeightedPath) -> TextCounts:
    """Counts of the pairs of an epoch, on average."""
    counts = data.manifest.splits["train"]
    used = part.weight * _used_pairs(part.part, counts.pairs)
    return TextCounts(*(round(used * count / counts.pairs) for count in vars(counts).values()))


def _used_pairs(part: Decimal, pairs: int) -> int:
    """Pairs of a data set of which only a part is used: at least one."""
    return math.ceil(part * pairs)
