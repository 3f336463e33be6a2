"""What the workers do to a block of pairs: clean it, count its words, encode it, and assemble shards of many.

Each result is one file, written whole or not at all, so that an interrupted run goes on with the next block. What a
block becomes depends on its pairs, its number and the seed alone, never on who does it or when.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman.corpus.cleaning import Cleaner, RuleCount, fold_space
from dragoman.corpus.dataset import Volume
from dragoman.corpus.deduplication import Hashes, hash_line, hashes_from
from dragoman.corpus.shards import gather_pairs, write_shard
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import BulkEncoder, Tokenizer, count_words
from dragoman.files import replacing
from dragoman.settings import RuleName, Settings

BLOCK_PAIRS = 16384
SHARD_PAIRS = 500_000

Mask = npt.NDArray[np.bool_]
Rules = dict[RuleName, RuleCount]
TextPairs = list[tuple[str, str]]


@dataclass(frozen=True)
class BlockJob:
    """What every worker needs to know."""

    folder: Path
    languages: Languages
    settings: Settings

    def cleaned(self, block: int) -> Path:
        return self.folder / "clean" / f"{block:06d}.npz"

    def encoded(self, block: int) -> Path:
        return self.folder / "encode" / f"{block:06d}.npz"

    def uses(self, rule: RuleName) -> bool:
        return rule in self.settings.cleaning.rules


@dataclass(frozen=True)
class Cleaned:
    """What cleaning left of a block."""

    pairs: int
    raw_pairs: int
    raw_bytes: int
    rules: Rules


@dataclass(frozen=True)
class Encoded:
    """A block as tokens: all of it (`before`), what cleaning kept (`after`), and that by weight (`written`)."""

    before: Volume
    after: Volume
    written: Volume
    rules: Rules
    held_out: TextPairs
    """The text of the pairs that were held out of training, in order."""


def clean_block(job: BlockJob, block: int, source: bytes, target: bytes) -> Cleaned:
    """Clean the lines of a block. Dropped pairs are kept beside it, so that they can be counted in tokens too."""
    path = job.cleaned(block)
    if path.exists():
        return load_cleaned(job, block)
    cleaner = Cleaner(job.settings.cleaning, job.languages)
    kept: list[bytes] = []
    dropped: list[bytes] = []
    raw = list(zip(source.split(b"\n"), target.split(b"\n"), strict=True))
    for source_line, target_line in raw:
        pair = cleaner.clean(source_line, target_line)
        if pair is None:
            dropped.append(as_line(*(fold_space(side.decode(errors="replace")) for side in (source_line, target_line))))
        else:
            kept.append(as_line(*pair))
    cleaned = Cleaned(len(kept), len(raw), len(source) + len(target) + 2, cleaner.counts)
    _save(
        path,
        text=_pack(b"\n".join(kept)),
        dropped=_pack(b"\n".join(dropped)),
        hashes=hashes_from(b"".join(map(hash_line, kept))),
        report=_pack(json.dumps(asdict(cleaned)).encode()),
    )
    return cleaned


def load_cleaned(job: BlockJob, block: int) -> Cleaned:
    content = json.loads(_unpack(job.cleaned(block), "report"))
    return Cleaned(**{**content, "rules": _rules_from(content["rules"])})


def load_hashes(job: BlockJob, block: int) -> Hashes:
    hashes: Hashes = _load(job.cleaned(block), "hashes")
    return hashes


def load_pairs(job: BlockJob, block: int) -> list[tuple[str, str]]:
    """The cleaned pairs of a block."""
    return [_decoded(line) for line in _lines(job.cleaned(block), "text")]


def count_words_in(job: BlockJob, chosen: Mapping[int, Mask]) -> Counter[str]:
    """Word counts of the chosen pairs of some blocks, both sides together."""
    counts: Counter[str] = Counter()
    for block, mask in chosen.items():
        lines = _lines(job.cleaned(block), "text")
        counts.update(count_words([lines[i].decode().replace("\t", " ") for i in np.flatnonzero(mask)]))
    return counts


def encode_block(
    job: BlockJob, block: int, keep: Mask, held_out: Sequence[int], weight: float, tokenizer: Path, shards: int
) -> Encoded:
    """Encode the kept pairs of a block, repeat them by weight, and sort them by the shard that chance gives each."""
    path = job.encoded(block)
    if path.exists():
        content = json.loads(_unpack(path, "report"))
        volumes = {name: Volume(**content[name]) for name in ("before", "after", "written")}
        texts = [(source, target) for source, target in content["held_out"]]
        return Encoded(**volumes, rules=_rules_from(content["rules"]), held_out=texts)
    encoder = _encoder(tokenizer)
    lines = _lines(job.cleaned(block), "text")
    sides, lengths = _encode(encoder, lines)
    _, dropped_lengths = _encode(encoder, _lines(job.cleaned(block), "dropped"))
    text_bytes = np.array([len(line) + 1 for line in lines], np.int64)

    rules: Rules = {}
    keep = keep.copy()
    if job.uses("tokens"):
        too_long = keep & (lengths.max(axis=1, initial=0) > job.settings.cleaning.max_tokens)
        rules["tokens"] = RuleCount()
        for pair in np.flatnonzero(too_long):
            rules["tokens"].add(*_decoded(lines[pair]))
        keep &= ~too_long

    random = np.random.default_rng([job.settings.corpus.seed, 1, block])
    times = int(weight) + (random.random(len(lengths)) < weight % 1)
    chosen = np.repeat(np.arange(len(lengths)), np.where(keep, times, 0))
    shard_of = random.integers(shards, size=len(chosen))
    tokens = np.frombuffer(b"".join(sides), encoder.tokenizer.dtype)
    by_shard: dict[str, Any] = {}
    for shard in range(shards):
        order = chosen[shard_of == shard]
        by_shard[f"lengths_{shard}"] = lengths[order]
        by_shard[f"tokens_{shard}"] = np.concatenate([tokens[:0], *gather_pairs(tokens, lengths, order)])

    raw = load_cleaned(job, block)
    all_tokens = lengths.sum(axis=0) + dropped_lengths.sum(axis=0)
    encoded = Encoded(
        before=Volume(raw.raw_pairs, raw.raw_bytes, int(all_tokens[0]), int(all_tokens[1])),
        after=_volume(np.flatnonzero(keep), lengths, text_bytes),
        written=_volume(chosen, lengths, text_bytes),
        rules=rules,
        held_out=[_decoded(lines[place]) for place in held_out],
    )
    _save(path, report=_pack(json.dumps(asdict(encoded)).encode()), **by_shard)
    return encoded


def assemble_shard(job: BlockJob, shard: int, blocks: int, folder: Path) -> None:
    """Bring a shard's pairs of all blocks together in random order."""
    if (folder / f"{shard:05d}.offsets").exists():
        return
    tokens, lengths = [], []
    for block in range(blocks):
        with np.load(job.encoded(block)) as content:
            tokens.append(content[f"tokens_{shard}"])
            lengths.append(content[f"lengths_{shard}"])
    all_lengths = np.concatenate(lengths)
    all_tokens = np.concatenate(tokens)
    del tokens, lengths
    order = np.random.default_rng([job.settings.corpus.seed, 2, shard]).permutation(len(all_lengths))
    write_shard(folder, shard, gather_pairs(all_tokens, all_lengths, order), all_lengths[order])


def write_evaluation_shard(folder: Path, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> Volume:
    """A validation or test set as one shard, in its own order."""
    # White space in these sets is as it came: folded here for the tokens, kept in the text.
    lines = [as_line(*(fold_space(side) for side in pair)) for pair in pairs]
    sides, lengths = _encode(BulkEncoder(tokenizer), lines)
    write_shard(folder, 0, [np.frombuffer(b"".join(sides), tokenizer.dtype)], lengths)
    text_bytes = sum(len(source.encode()) + len(target.encode()) + 2 for source, target in pairs)
    return Volume(len(pairs), text_bytes, int(lengths[:, 0].sum()), int(lengths[:, 1].sum()))


@lru_cache(maxsize=1)
def _encoder(tokenizer: Path) -> BulkEncoder:
    """One a process: its cache of words serves all blocks."""
    return BulkEncoder(Tokenizer.load(tokenizer))


def _encode(encoder: BulkEncoder, lines: Sequence[bytes]) -> tuple[list[bytes], npt.NDArray[np.int32]]:
    """All sides of the pairs one after the other, and their lengths [pairs, 2]."""
    sides = [encoder.encode(side) for line in lines for side in line.split(b"\t")]
    width = encoder.tokenizer.dtype.itemsize
    lengths = np.array([len(side) // width for side in sides], np.int32).reshape(-1, 2)
    return sides, lengths


def _volume(chosen: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], text_bytes: npt.NDArray[np.int64]) -> Volume:
    tokens = lengths[chosen].sum(axis=0)
    return Volume(len(chosen), int(text_bytes[chosen].sum()), int(tokens[0]), int(tokens[1]))


def as_line(source: str, target: str) -> bytes:
    """A pair as one line. White space was folded, so that neither side holds a tab or a line end."""
    return f"{source}\t{target}".encode()


def _decoded(line: bytes) -> tuple[str, str]:
    """The opposite of `as_line`."""
    source, target = line.decode().split("\t")
    return source, target


def _rules_from(content: dict[RuleName, Any]) -> Rules:
    return {
        rule: RuleCount(count["pairs"], [tuple(pair) for pair in count["samples"]]) for rule, count in content.items()
    }


def _save(path: Path, **arrays: Any) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _load(path: Path, name: str) -> npt.NDArray[Any]:
    with np.load(path) as content:
        array: npt.NDArray[Any] = content[name]
    return array


def _pack(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, np.uint8)


def _unpack(path: Path, name: str) -> str:
    return _load(path, name).tobytes().decode()


def _lines(path: Path, name: str) -> list[bytes]:
    text = _load(path, name).tobytes()
    return text.split(b"\n") if text else []
