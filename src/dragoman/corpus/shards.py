"""Memory-mapped shards of tokenized sentence pairs.

A split is a folder of shards. Shard `00000` has two files: `00000.tokens` with all its tokens, and `00000.offsets`
with the start of each side (int64, twice the number of pairs plus one): pair i is `tokens[offsets[2i]:offsets[2i+1]]`
and `tokens[offsets[2i+1]:offsets[2i+2]]`. Both sides end with the EOS token.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dragoman.errors import DragomanError
from dragoman.files import replacing

Tokens = npt.NDArray[np.unsignedinteger]
Shard = tuple[npt.NDArray[np.int64], Tokens]
"""Offsets and tokens."""
OFFSET_DTYPE = np.dtype("<i8")
_GATHER_CHUNK_PAIRS = 16384


def write_shard(folder: Path, index: int, chunks: Iterable[Tokens], lengths: npt.NDArray[np.int32]) -> None:
    """Write one shard from the tokens of all pairs in order, and their `lengths` [pairs, 2].

    The offsets file is written last: a shard that has one is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    offsets = _offsets(lengths)
    with replacing(folder / f"{index:05d}.tokens") as path, path.open("wb") as file:
        for chunk in chunks:
            chunk.astype(chunk.dtype.newbyteorder("<"), copy=False).tofile(file)
    with replacing(folder / f"{index:05d}.offsets") as path:
        offsets.tofile(path)


def _offsets(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The start of each side, and the end of the last."""
    offsets = np.zeros(lengths.size + 1, OFFSET_DTYPE)
    np.cumsum(lengths.reshape(-1), out=offsets[1:])
    return offsets


class Pairs:
    """The pairs of one split, by index."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = shards
        self._offsets = [offsets for offsets, _ in shards]
        self._tokens = [tokens for _, tokens in shards]
        counts = [len(offsets) // 2 for offsets in self._offsets]
        self._shard_starts = np.concatenate([[0], np.cumsum(counts)])

    @classmethod
    def open(cls, folder: Path, dtype: np.dtype[np.unsignedinteger]) -> "Pairs":
        """The pairs of a folder of shards."""
        paths = sorted(folder.glob("*.offsets"))
        if not paths:
            raise DragomanError(f"{folder} contains no shards: prepare the data set again.")
        try:
            shards = [
                (np.memmap(path, OFFSET_DTYPE, mode="r"), np.memmap(path.with_suffix(".tokens"), dtype, mode="r"))
                for path in paths
            ]
        except (OSError, ValueError) as error:
            raise DragomanError(f"{folder} is damaged ({error}): prepare the data set again.") from None
        for path, (offsets, tokens) in zip(paths, shards, strict=True):
            if len(offsets) % 2 == 0 or len(tokens) < offsets[-1]:
                raise DragomanError(f"{path.with_suffix('')}.* are truncated: prepare or copy the data set again.")
        return cls(shards)

    @classmethod
    def in_memory(cls, tokens: Tokens, lengths: npt.NDArray[np.int32]) -> "Pairs":
        """The pairs with these tokens, one after the other, and these lengths, [pairs, 2]."""
        return cls([(_offsets(lengths), tokens)])

    def __len__(self) -> int:
        return int(self._shard_starts[-1])

    def __getitem__(self, index: int) -> tuple[Tokens, Tokens]:
        """Both sides of a pair, as views of the memory-mapped file."""
        shard = int(np.searchsorted(self._shard_starts, index, side="right")) - 1
        offsets = self._offsets[shard]
        position = 2 * (index - int(self._shard_starts[shard]))
        start, middle, end = offsets[position : position + 3].tolist()
        tokens = self._tokens[shard]
        return tokens[start:middle], tokens[middle:end]

    def gather(self, indexes: npt.NDArray[np.int64]) -> tuple[Tokens, Tokens]:
        """The concatenated tokens of many pairs: all source sides, and all target sides."""
        shards = np.searchsorted(self._shard_starts, indexes, side="right") - 1
        rows_by_shard = [(shard, np.flatnonzero(shards == shard)) for shard in np.unique(shards)]
        sides: list[Tokens] = []
        for side in (0, 1):
            starts, sizes = np.empty_like(indexes), np.empty_like(indexes)
            for shard, rows in rows_by_shard:
                positions = 2 * (indexes[rows] - self._shard_starts[shard]) + side
                offsets = self._offsets[shard]
                starts[rows] = offsets[positions]
                sizes[rows] = offsets[positions + 1] - starts[rows]
            ends = np.cumsum(sizes)
            tokens = np.empty(ends[-1], self._tokens[0].dtype)
            for shard, rows in rows_by_shard:
                tokens[span_indexes((ends - sizes)[rows], sizes[rows])] = self._tokens[shard][
                    span_indexes(starts[rows], sizes[rows])
                ]
            sides.append(tokens)
        return sides[0], sides[1]

    def of_epoch(self, epoch: int, seed: int) -> npt.NDArray[np.int32] | None:  # noqa: ARG002 (as of mixed pairs)
        """Indexes of the pairs of an epoch; None stands for each pair once."""
        return None

    def lengths(self) -> npt.NDArray[np.int32]:
        """The number of tokens of each side of every pair, [pairs, 2], with the EOS token."""
        lengths = np.empty((len(self), 2), np.int32)
        for first, offsets in zip(self._shard_starts, self._offsets, strict=False):
            part = lengths[first : first + len(offsets) // 2]
            np.subtract(offsets[1:], offsets[:-1], out=part.reshape(-1), casting="unsafe")
        return lengths


def gather_pairs(tokens: Tokens, lengths: npt.NDArray[np.int32], order: npt.NDArray[np.int64]) -> Iterator[Tokens]:
    """The tokens of pairs in another order, in chunks, so that the index array stays small."""
    sizes = lengths.sum(axis=1, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    for first in range(0, len(order), _GATHER_CHUNK_PAIRS):
        selected = order[first : first + _GATHER_CHUNK_PAIRS]
        yield tokens[span_indexes(starts[selected], sizes[selected])]


def span_indexes(starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The concatenated ranges `start, start + 1, ...` of the given sizes."""
    ends = np.cumsum(sizes)
    indexes: npt.NDArray[np.int64] = np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)
    return indexes
