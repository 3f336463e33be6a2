"""Tasks of the worker processes: clean, augment, count and encode blocks of pairs, and assemble shards.

Each result is one file that is written atomically, so an interrupted run resumes with the next block. A result depends
only on the block's pairs, its number and the seed.
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

from dragoman.corpus.augmentation import augment
from dragoman.corpus.cleaning import Cleaner, RuleCount
from dragoman.corpus.dataset import TextCounts
from dragoman.corpus.deduplication import Hashes, hash_line, hashes_from
from dragoman.corpus.shards import gather_pairs, write_shard
from dragoman.corpus.sources import Languages
from dragoman.corpus.text_normalization import collapse_whitespace
from dragoman.corpus.tokenizer import CachedEncoder, Tokenizer
from dragoman.corpus.word_index import WordIndex
from dragoman.files import replacing
from dragoman.settings import AUGMENTATIONS, RuleName, Settings
from dragoman.text_lines import split_lines

BLOCK_PAIRS = 16384
SHARD_PAIRS = 500_000

Mask = npt.NDArray[np.bool_]
Rules = dict[str, RuleCount]
TextPairs = list[tuple[str, str]]


@dataclass(frozen=True)
class PreparationJob:
    """The parameters that all tasks of one preparation share."""

    folder: Path
    languages: Languages
    settings: Settings

    def cleaned(self, block: int) -> Path:
        return self.folder / "clean" / f"{block:06d}.npz"

    def scored(self, block: int) -> Path:
        return self.folder / "score" / f"{block:06d}.npy"

    def augmented(self, block: int) -> Path:
        return self.folder / "augment" / f"{block:06d}.npz"

    def text(self, block: int) -> Path:
        """The file with the text to train on: with the augmented copies, if there are any."""
        return self.augmented(block) if self.settings.augmentation.is_active else self.cleaned(block)

    def encoded(self, block: int) -> Path:
        return self.folder / "encode" / f"{block:06d}.npz"

    def uses(self, rule: RuleName) -> bool:
        return rule in self.settings.cleaning.rules


@dataclass(frozen=True)
class CleanedBlock:
    """The result of cleaning a block."""

    pairs: int
    raw_pairs: int
    raw_bytes: int
    rules: Rules


@dataclass(frozen=True)
class EncodedBlock:
    """Counts of an encoded block: all pairs (`before`), the pairs kept (`after`), and those with copies (`written`)."""

    before: TextCounts
    after: TextCounts
    written: TextCounts
    rules: Rules
    held_out: TextPairs
    """The text of the held-out pairs, in order."""


@dataclass(frozen=True)
class SourceBlock:
    """A cleaned block, with the index of its source."""

    source: int
    cleaned: CleanedBlock


def clean_block(job: PreparationJob, block: int, source: bytes, target: bytes) -> CleanedBlock:
    """Clean the lines of a block. Dropped pairs are saved too, so that their tokens can be counted."""
    path = job.cleaned(block)
    if path.exists():
        return load_cleaned(job, block)
    cleaner = Cleaner(job.settings.cleaning, job.languages)
    kept: list[bytes] = []
    dropped: list[bytes] = []
    raw = list(zip(split_lines(source), split_lines(target), strict=True))
    for source_line, target_line in raw:
        pair = cleaner.clean(source_line, target_line)
        if pair is None:
            dropped.append(
                as_line(*(collapse_whitespace(side.decode(errors="replace")) for side in (source_line, target_line)))
            )
        else:
            kept.append(as_line(*pair))
    cleaned = CleanedBlock(len(kept), len(raw), len(source) + len(target), cleaner.counts)
    _save(
        path,
        **_indexed_text(b"\n".join(kept)),
        dropped=_pack(b"\n".join(dropped)),
        hashes=hashes_from(b"".join(map(hash_line, kept))),
        report=_pack(json.dumps(asdict(cleaned)).encode()),
    )
    return cleaned


def load_cleaned(job: PreparationJob, block: int) -> CleanedBlock:
    content = json.loads(_unpack(job.cleaned(block), "report"))
    return CleanedBlock(**{**content, "rules": _rules_from_json(content["rules"])})


def load_hashes(job: PreparationJob, block: int) -> Hashes:
    hashes: Hashes = _load(job.cleaned(block), "hashes")
    return hashes


def load_pairs(job: PreparationJob, block: int) -> list[tuple[str, str]]:
    """The cleaned pairs of a block."""
    return [_decode_pair(line) for line in _load_lines(job.cleaned(block))]


def augment_block(job: PreparationJob, block: int, keep: Mask) -> Rules:
    """Append changed copies of the kept pairs of a block, and count them."""
    path = job.augmented(block)
    if path.exists():
        return _rules_from_json(json.loads(_unpack(path, "report")))
    lines = _load_lines(job.cleaned(block))
    kept = np.flatnonzero(keep)
    rules: Rules = {name: RuleCount() for name in AUGMENTATIONS if getattr(job.settings.augmentation, name)}
    originals = []
    copies = augment(
        [_decode_pair(lines[pair]) for pair in kept], load_hashes(job, block)[kept], job.settings.augmentation,
        job.languages, job.settings.corpus.seed,
    )  # fmt: skip
    for copy in copies:
        rules[copy.change].add(*copy.pair)
        originals.append(kept[copy.position])
        lines.append(as_line(*copy.pair))
    text = b"\n".join(lines)
    report = {name: asdict(count) for name, count in rules.items()}
    _save(
        path,
        **_indexed_text(text),
        originals=np.array(originals, np.int64),
        report=_pack(json.dumps(report).encode()),
    )
    return rules


def _indexed_text(text: bytes) -> dict[str, Any]:
    """Arrays of a text and of its words; `_load_lines` and `_load_index` read them."""
    index = WordIndex.from_text(text)
    return {"text": _pack(text), "words": _pack(b" ".join(index.words)), "word_numbers": index.numbers}


def _load_index(path: Path) -> WordIndex:
    with np.load(path) as content:
        return WordIndex(content["words"].tobytes().split(b" "), content["word_numbers"])


def _load_lines(path: Path) -> list[bytes]:
    return split_lines(_load(path, "text").tobytes())


def _with_copies(job: PreparationJob, block: int, selected: Mask) -> Mask:
    """The mask of a block's pairs, with the augmented copies of the selected ones at its end."""
    if not job.settings.augmentation.is_active:
        return selected.copy()
    return np.concatenate([selected, selected[_load(job.augmented(block), "originals")]])


def count_block_words(job: PreparationJob, selected: Mapping[int, Mask]) -> Counter[str]:
    """Word counts of the selected pairs of some blocks, both sides together."""
    counts: Counter[bytes] = Counter()
    for block, mask in selected.items():
        counts.update(_load_index(job.text(block)).count(_with_copies(job, block, mask)))
    return Counter({word.decode(): count for word, count in counts.items()})


def encode_block(
    job: PreparationJob, block: int, keep: Mask, held_out: Sequence[int], weight: float, tokenizer: Path, shards: int
) -> EncodedBlock:
    """Encode the kept pairs of a block, repeat them by weight, and assign each to a random shard."""
    path = job.encoded(block)
    if path.exists():
        content = json.loads(_unpack(path, "report"))
        counts = {name: TextCounts(**content[name]) for name in ("before", "after", "written")}
        texts = [(source, target) for source, target in content["held_out"]]
        return EncodedBlock(**counts, rules=_rules_from_json(content["rules"]), held_out=texts)
    encoder = _encoder(tokenizer)
    lines = _load_lines(job.text(block))
    if encoder.tokenizer.encodes_word_by_word:
        tokens, lengths = encoder.encode_index(_load_index(job.text(block)))
    else:
        tokens, lengths = encoder.encode(b"\n".join(lines))
    _, dropped_lengths = encoder.encode(_load(job.cleaned(block), "dropped").tobytes())
    text_bytes = np.array([len(line) + 1 for line in lines], np.int64)

    rules: Rules = {}
    pairs = len(keep)
    keep = _with_copies(job, block, keep)
    if job.uses("tokens"):
        too_long = keep & (lengths.max(axis=1, initial=0) > job.settings.cleaning.max_tokens)
        rules["tokens"] = RuleCount()
        for pair in np.flatnonzero(too_long[:pairs]):
            rules["tokens"].add(*_decode_pair(lines[pair]))
        keep &= ~too_long

    random = np.random.default_rng([job.settings.corpus.seed, 1, block])
    times = int(weight) + (random.random(len(lengths)) < weight % 1)
    selected = np.repeat(np.arange(len(lengths)), np.where(keep, times, 0))
    shard_of = random.integers(shards, size=len(selected))
    by_shard: dict[str, Any] = {}
    for shard in range(shards):
        order = selected[shard_of == shard]
        by_shard[f"lengths_{shard}"] = lengths[order]
        by_shard[f"tokens_{shard}"] = np.concatenate([tokens[:0], *gather_pairs(tokens, lengths, order)])

    raw = load_cleaned(job, block)
    all_tokens = lengths[:pairs].sum(axis=0) + dropped_lengths.sum(axis=0)
    encoded = EncodedBlock(
        before=TextCounts(raw.raw_pairs, raw.raw_bytes, int(all_tokens[0]), int(all_tokens[1])),
        after=_count_text(np.flatnonzero(keep[:pairs]), lengths, text_bytes),
        written=_count_text(selected, lengths, text_bytes),
        rules=rules,
        held_out=[_decode_pair(lines[index]) for index in held_out],
    )
    _save(path, report=_pack(json.dumps(asdict(encoded)).encode()), **by_shard)
    return encoded


def assemble_shard(job: PreparationJob, shard: int, blocks: int, folder: Path) -> None:
    """Write the pairs of all blocks that belong to one shard, in random order."""
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


def write_evaluation_shard(folder: Path, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> TextCounts:
    """Write a validation or test set as one shard, in its original order."""
    tokens, lengths = encode_pairs(tokenizer, pairs)
    write_shard(folder, 0, [tokens], lengths)
    text_bytes = sum(len(source.encode()) + len(target.encode()) + 2 for source, target in pairs)
    return TextCounts(len(pairs), text_bytes, int(lengths[:, 0].sum()), int(lengths[:, 1].sum()))


def encode_pairs(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int32]]:
    """The tokens of pairs of a validation or test set, and their lengths, [pairs, 2]."""
    # Whitespace is collapsed for the tokens only; the text files keep it.
    lines = [as_line(*(collapse_whitespace(side) for side in pair)) for pair in pairs]
    return CachedEncoder(tokenizer).encode(b"\n".join(lines))


@lru_cache(maxsize=1)
def _encoder(tokenizer: Path) -> CachedEncoder:
    """One encoder per process, so that its word cache serves all blocks."""
    return CachedEncoder(Tokenizer.load(tokenizer))


def _count_text(
    selected: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], text_bytes: npt.NDArray[np.int64]
) -> TextCounts:
    tokens = lengths[selected].sum(axis=0)
    return TextCounts(len(selected), int(text_bytes[selected].sum()), int(tokens[0]), int(tokens[1]))


def as_line(source: str, target: str) -> bytes:
    """A pair as one line. Whitespace was collapsed, so neither side contains a tab or a newline."""
    return f"{source}\t{target}".encode()


def _decode_pair(line: bytes) -> tuple[str, str]:
    """The inverse of `as_line`."""
    source, target = line.decode().split("\t")
    return source, target


def _rules_from_json(content: dict[str, Any]) -> Rules:
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
