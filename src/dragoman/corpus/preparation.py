"""`dragoman prepare`: text to a data set, streaming, in parallel, in bounded memory.

The work is done in a folder beside the result, in stages whose parts are files that are whole or absent:

    read and clean blocks -> mark duplicates, hold out -> train the tokenizer -> encode blocks -> assemble shards

An interrupted run finds the parts that are there and goes on. The result gets its name when everything is on disk.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dragoman import __version__
from dragoman.corpus import tokenizer as tokenizers
from dragoman.corpus.block_tasks import (
    BLOCK_PAIRS,
    SHARD_PAIRS,
    BlockJob,
    Cleaned,
    Encoded,
    Mask,
    TextPairs,
    as_line,
    assemble_shard,
    clean_block,
    count_words_in,
    encode_block,
    load_hashes,
    load_pairs,
    write_evaluation_shard,
)
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.cleaning import SAMPLES_PER_RULE, Cleaner, RuleCount, merge_counts
from dragoman.corpus.dataset import (
    MANIFEST_FILE,
    SPLITS,
    TOKENIZER_FILE,
    FileReport,
    Manifest,
    RuleReport,
    SourceReport,
    Volume,
    identify,
    text_files,
)
from dragoman.corpus.deduplication import Hashes, hash_line, hashes_from, mark_duplicates
from dragoman.corpus.process_pool import Workers
from dragoman.corpus.sources import Source, fingerprint, is_standard_input, read_pairs
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import CorpusError, DragomanError
from dragoman.files import publish_folder, replacing, sweep, write_json
from dragoman.progress import Progress, no_progress
from dragoman.settings import RuleName, Settings

JOB_FILE = "job.json"
UNHASHED = frozenset({MANIFEST_FILE, JOB_FILE})
"""The manifest cannot hold its own hash; the job knows paths and times, which are not the data's."""
LARGEST_HELD_OUT_SHARE = 0.1
COUNTED_TOGETHER = 8
"""Blocks whose words one worker counts before it tells: most words occur in all of them."""


@dataclass(frozen=True)
class Block:
    """A block of one source, as cleaning left it."""

    source: int
    cleaned: Cleaned


def prepare(
    corpus: Corpus,
    out: Path,
    settings: Settings,
    *,
    workers: int,
    tokenizer: Path | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> bool:
    """Make the data set `out`. False where it was there already, made from the same inputs with the same settings."""
    out = out.absolute()
    description = _describe(corpus, settings, tokenizer)
    if out.exists():
        if _made_from(out, description):
            return False
        _check_replaceable(out, overwrite)
    partial = out.with_name(f"{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(partial):
            reads_stdin = any(is_standard_input(source) for source in (*corpus.train, *corpus.valid, *corpus.test))
            if reads_stdin or not _made_from(partial, description):
                shutil.rmtree(partial, ignore_errors=True)
                (partial / "clean").mkdir(parents=True)
                (partial / "encode").mkdir()
                write_json(partial / JOB_FILE, description)
            with Workers(workers) as pool:
                _Preparation(corpus, partial, settings, pool, progress).run(tokenizer)
            write_json(partial / "finished" / JOB_FILE, description)
            publish_folder(partial / "finished", out)
            shutil.rmtree(partial)
    except CorpusError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except OSError as error:
        raise DragomanError(
            f"{out} cannot be written ({error.strerror or error}): mend that and run the same command again; it goes "
            "on where it was."
        ) from error
    return True


def _check_replaceable(out: Path, overwrite: bool) -> None:
    """Only a data set is ever replaced, and only when that was asked for."""
    if not (out / MANIFEST_FILE).is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise DragomanError(f"{out} exists and is no data set: choose another --out.")
    if (out / MANIFEST_FILE).is_file() and not overwrite:
        raise DragomanError(
            f"{out} exists and was made from other inputs or settings: choose another --out, or give --overwrite."
        )


def _describe(corpus: Corpus, settings: Settings, tokenizer: Path | None) -> dict[str, Any]:
    """All that the result depends on."""
    described = {
        "dragoman": __version__,
        "name": corpus.name,
        "languages": [corpus.languages.source, corpus.languages.target],
        "settings": settings.model_dump(mode="json", include={"corpus", "cleaning", "tokenizer"}),
        "tokenizer": None if tokenizer is None else hashlib.sha256(Tokenizer.load(tokenizer).model).hexdigest(),
        "sources": {
            split: [
                [source.name, source.format, source.weight, fingerprint(source)] for source in getattr(corpus, split)
            ]
            for split in SPLITS
        },
    }
    return dict(json.loads(json.dumps(described)))


def _made_from(folder: Path, description: dict[str, Any]) -> bool:
    try:
        return bool(json.loads((folder / JOB_FILE).read_bytes()) == description)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _locked(partial: Path) -> Iterator[None]:
    """One process at a time: two that make the same data set would tread on each other."""
    lock = partial.with_name(f".{partial.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DragomanError(
                f"{partial} is being made by another process: wait for it, or choose another --out."
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


class _Preparation:
    """One run of the stages."""

    def __init__(self, corpus: Corpus, folder: Path, settings: Settings, pool: Workers, progress: Progress) -> None:
        self._corpus = corpus
        self._finished = folder / "finished"
        self._settings = settings
        self._pool = pool
        self._progress = progress
        self._job = BlockJob(folder, corpus.languages, settings)
        self._seed = settings.corpus.seed

    def run(self, given_tokenizer: Path | None) -> None:
        evaluation: dict[str, TextPairs] = {
            "valid": self._read_evaluation(self._corpus.valid),
            "test": self._read_evaluation(self._corpus.test),
        }
        blocks = list(self._clean())
        keep, duplicates = self._drop_duplicates(blocks, evaluation)
        held_out = self._hold_out(keep, evaluation)
        if not any(mask.any() for mask in keep):
            raise self._nothing_left(blocks, duplicates)
        self._finished.mkdir(exist_ok=True)
        sweep(self._finished)
        tokenizer_path = self._finished / TOKENIZER_FILE
        self._make_tokenizer(blocks, keep, given_tokenizer, tokenizer_path)
        encoded = self._encode(blocks, keep, held_out, tokenizer_path)
        for part, for_valid in zip(encoded, held_out["valid"], strict=True):
            evaluation["valid"] += part.held_out[: len(for_valid)]
            evaluation["test"] += part.held_out[len(for_valid) :]

        tokenizer = Tokenizer.load(tokenizer_path)
        splits = {"train": sum((part.written for part in encoded), Volume())}
        if not splits["train"].pairs:
            raise self._nothing_left(blocks, duplicates)
        for split, pairs in evaluation.items():
            if pairs:
                splits[split] = self._write_evaluation(split, pairs, tokenizer)
        files = self._hash_files()
        manifest = Manifest(
            name=self._corpus.name,
            identity=identify(files),
            languages=self._corpus.languages,
            pieces=tokenizer.size,
            token_dtype=tokenizer.dtype.name,
            splits=splits,
            sources=self._report_sources(blocks, encoded, duplicates),
            evaluation_sources={
                split: [source.name for source in sources]
                or (["held out of the training pairs"] if evaluation[split] else [])
                for split, sources in (("valid", self._corpus.valid), ("test", self._corpus.test))
            },
            files=files,
            settings=self._settings.model_dump(mode="json", include={"corpus", "cleaning", "tokenizer"}),
            dragoman=__version__,
        )
        write_json(self._finished / MANIFEST_FILE, manifest.to_json())

    def _nothing_left(self, blocks: Sequence[Block], duplicates: Sequence[RuleCount]) -> CorpusError:
        rules: dict[RuleName, RuleCount] = {}
        for block, repeated in zip(blocks, duplicates, strict=True):
            merge_counts(rules, {**block.cleaned.rules, "duplicate": repeated})
        most = max(rules, key=lambda rule: rules[rule].pairs, default="tokens")
        return CorpusError(
            f"no training pair is left after cleaning, most were dropped by the rule '{most}': check that the files "
            "are right, or change the settings under cleaning"
        )

    def _read_evaluation(self, sources: Sequence[Source]) -> TextPairs:
        """Validation and test sets keep every line, in order: scores must compare with everyone else's."""
        return [
            (source_side.decode(errors="replace"), target_side.decode(errors="replace"))
            for source in sources
            for source_side, target_side in read_pairs(source, self._corpus.languages)
        ]

    def _clean(self) -> Iterator[Block]:
        origins: list[int] = []

        def calls() -> Iterator[tuple[BlockJob, int, bytes, bytes]]:
            for number, source in enumerate(self._corpus.train):
                pairs = read_pairs(source, self._corpus.languages)
                while block := list(itertools.islice(pairs, BLOCK_PAIRS)):
                    source_lines, target_lines = zip(*block, strict=True)
                    origins.append(number)
                    yield self._job, len(origins) - 1, b"\n".join(source_lines), b"\n".join(target_lines)

        done = 0
        for index, cleaned in enumerate(self._pool.map(clean_block, calls())):
            done += cleaned.raw_pairs
            self._progress("Cleaning pairs", done, None)
            yield Block(origins[index], cleaned)

    def _drop_duplicates(
        self, blocks: Sequence[Block], evaluation: dict[str, TextPairs]
    ) -> tuple[list[Mask], list[RuleCount]]:
        """Of equal pairs the first stays. What occurs in the validation or test set is no training pair at all."""
        keep = [np.ones(block.cleaned.pairs, np.bool_) for block in blocks]
        counts = [RuleCount() for _ in blocks]
        if not self._job.uses("duplicate"):
            return keep, counts
        known = self._hash_evaluation(evaluation)

        def load(block: int) -> Hashes:
            return known if block == 0 else load_hashes(self._job, block - 1)

        repeats = mark_duplicates([len(known), *(block.cleaned.pairs for block in blocks)], load)[len(known) :]
        first = sampled = 0
        for index, block in enumerate(blocks):
            repeated = repeats[first : first + block.cleaned.pairs]
            first += block.cleaned.pairs
            keep[index] &= ~repeated
            counts[index].pairs = int(repeated.sum())
            if counts[index].pairs and sampled < SAMPLES_PER_RULE:
                pairs = load_pairs(self._job, index)
                counts[index].samples = [pairs[place] for place in np.flatnonzero(repeated)[:SAMPLES_PER_RULE]]
                sampled += len(counts[index].samples)
            self._progress("Dropping duplicates", index + 1, len(blocks))
        return keep, counts

    def _hash_evaluation(self, evaluation: dict[str, TextPairs]) -> Hashes:
        cleaner = Cleaner(self._settings.cleaning, self._corpus.languages)
        digests = [hash_line(as_line(*cleaner.mend(*pair))) for pairs in evaluation.values() for pair in pairs]
        return hashes_from(b"".join(digests))

    def _keys(self, block: int, purpose: int) -> npt.NDArray[np.float64]:
        """A number in [0, 1) for each pair, from its content and the seed alone: chance that can be drawn again."""
        mix = np.random.default_rng([self._seed, purpose]).integers(2**63, dtype=np.uint64) | np.uint64(1)
        mixed = (load_hashes(self._job, block)[:, 1] ^ mix) * mix
        return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53

    def _hold_out(self, keep: list[Mask], evaluation: Mapping[str, TextPairs]) -> dict[str, list[list[int]]]:
        """Where the corpus names no validation or test set, choose pairs to take out of the training set, by block."""
        total = sum(int(mask.sum()) for mask in keep)
        held_out: dict[str, list[list[int]]] = {}
        for purpose, split in enumerate(("valid", "test")):
            wanted = min(getattr(self._settings.corpus, f"{split}_pairs"), int(total * LARGEST_HELD_OUT_SHARE))
            held_out[split] = [[] for _ in keep]
            if evaluation[split] or not wanted:
                continue
            limit = (2 * wanted + 100) / total  # Far more candidates than are wanted, and far fewer than all.
            candidates: list[tuple[float, int, int]] = []
            for index, mask in enumerate(keep):
                keys = self._keys(index, purpose)
                places = np.flatnonzero(mask & (keys < limit))
                candidates += [(float(keys[place]), index, int(place)) for place in places]
            for index, place in sorted((index, place) for _, index, place in sorted(candidates)[:wanted]):
                keep[index][place] = False
                held_out[split][index].append(place)
        return held_out

    def _make_tokenizer(self, blocks: Sequence[Block], keep: list[Mask], given: Path | None, path: Path) -> None:
        if given is not None:
            with replacing(path) as temporary:
                temporary.write_bytes(Tokenizer.load(given).model)
        if path.exists():
            return
        total = sum(int(mask.sum()) for mask in keep)
        share = self._settings.tokenizer.sample_pairs / max(1, total)
        groups = [
            range(first, min(first + COUNTED_TOGETHER, len(blocks)))
            for first in range(0, len(blocks), COUNTED_TOGETHER)
        ]
        calls = (
            (self._job, {index: keep[index] & (self._keys(index, 2) < share) for index in group}) for group in groups
        )
        words: Counter[str] = Counter()
        for group, part in zip(groups, self._pool.map(count_words_in, calls), strict=True):
            tokenizers.add_words(words, part)
            self._progress("Counting words", group.stop, len(blocks))
        self._progress("Training the tokenizer", 0, None)
        with replacing(path) as temporary:
            tokenizers.train(words, self._settings.tokenizer, temporary)

    def _encode(
        self, blocks: Sequence[Block], keep: list[Mask], held_out: Mapping[str, list[list[int]]], tokenizer: Path
    ) -> list[Encoded]:
        weights = [self._corpus.train[block.source].weight for block in blocks]
        total = sum(float(mask.sum()) * weight for mask, weight in zip(keep, weights, strict=True))
        shards = max(1, -(-int(total) // SHARD_PAIRS))
        encoded: list[Encoded] = []
        calls = (
            (self._job, i, mask, held_out["valid"][i] + held_out["test"][i], weights[i], tokenizer, shards)
            for i, mask in enumerate(keep)
        )
        for part in self._pool.map(encode_block, calls):
            encoded.append(part)
            self._progress("Encoding", len(encoded), len(blocks))
        folder = self._finished / "train"
        assembly = self._pool.map(assemble_shard, ((self._job, shard, len(blocks), folder) for shard in range(shards)))
        for shard, _ in enumerate(assembly):
            self._progress("Writing shards", shard + 1, shards)
        return encoded

    def _write_evaluation(self, split: str, pairs: TextPairs, tokenizer: Tokenizer) -> Volume:
        for path, side in zip(text_files(self._finished, split, self._corpus.languages), (0, 1), strict=True):
            with replacing(path) as temporary:
                temporary.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8", newline="\n")
        return write_evaluation_shard(self._finished / split, tokenizer, pairs)

    def _hash_files(self) -> dict[str, FileReport]:
        paths = sorted(path for path in self._finished.rglob("*") if path.is_file() and path.name not in UNHASHED)
        files = {}
        for path in paths:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.relative_to(self._finished).as_posix()] = FileReport(path.stat().st_size, digest)
        return files

    def _report_sources(
        self, blocks: Sequence[Block], encoded: Sequence[Encoded], duplicates: Sequence[RuleCount]
    ) -> list[SourceReport]:
        reports = []
        for number, source in enumerate(self._corpus.train):
            mine = [index for index, block in enumerate(blocks) if block.source == number]
            rules: dict[RuleName, RuleCount] = {}
            for index in mine:
                merge_counts(rules, blocks[index].cleaned.rules)
                merge_counts(rules, encoded[index].rules)
                if self._job.uses("duplicate"):
                    merge_counts(rules, {"duplicate": duplicates[index]})
            reports.append(
                SourceReport(
                    name=source.name,
                    files=[path.name for path in source.paths],
                    format=source.format,
                    weight=source.weight,
                    licence=source.licence,
                    before=sum((encoded[index].before for index in mine), Volume()),
                    after=sum((encoded[index].after for index in mine), Volume()),
                    held_out=sum(len(encoded[index].held_out) for index in mine),
                    rules={rule: RuleReport(count.pairs, count.samples) for rule, count in rules.items()},
                )
            )
        return reports
