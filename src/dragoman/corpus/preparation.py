"""`dragoman prepare`: text to a data set, streaming, in parallel, in bounded memory.

The stages write to a folder next to the result. Each stage writes its parts atomically, as one file each:

    read and clean blocks -> drop duplicates -> score by a model -> hold out pairs -> augment -> train the tokenizer
    -> encode blocks -> assemble shards

An interrupted run keeps the finished parts and resumes. The result is renamed to its final name when it is complete.
"""

import contextlib
import hashlib
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.corpus import tokenizer as tokenizers
from dragoman.corpus.block_tasks import (
    BLOCK_PAIRS,
    SHARD_PAIRS,
    EncodedBlock,
    Mask,
    PreparationJob,
    Rules,
    SourceBlock,
    TextPairs,
    assemble_shard,
    augment_block,
    clean_block,
    count_block_words,
    encode_block,
    write_evaluation_shard,
)
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.cleaning import merge_counts
from dragoman.corpus.dataset import JOB_FILE, MANIFEST_FILE, SPLITS, TOKENIZER_FILE, TextCounts, text_files
from dragoman.corpus.dropped_pairs import remedy_of
from dragoman.corpus.line_formats import decode_line
from dragoman.corpus.manifest_builder import build_manifest, report_sources
from dragoman.corpus.model_filter import PairScorer, drop_low_scores
from dragoman.corpus.pair_selection import drop_duplicates, hold_out, sample_pairs
from dragoman.corpus.process_pool import ProcessPool
from dragoman.corpus.sources import Source, fingerprint, is_standard_input, read_pairs
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import CorpusError, DragomanError, write_remedy
from dragoman.files import locked, publish_folder, remove_drafts, replacing, write_json
from dragoman.progress_callback import Progress, no_progress
from dragoman.settings import PREPARATION_SECTIONS, Settings

BLOCKS_PER_WORD_COUNT = 8
"""Blocks whose words a worker counts before it returns: most words occur in all of them."""


def prepare(
    corpus: Corpus,
    out: Path,
    settings: Settings,
    *,
    workers: int,
    tokenizer: Tokenizer | None = None,
    scorer: PairScorer | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> bool:
    """Create the data set `out`. Return False if it already exists, made from the same inputs and settings."""
    out = out.absolute()
    inputs = _describe_inputs(corpus, settings, tokenizer) | ({} if scorer is None else {"models": scorer.identity})
    if out.exists():
        if _was_made_from(out, inputs):
            return False
        _check_replaceable(out, overwrite)
    partial = out.with_name(f"{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(partial):
            reads_stdin = any(is_standard_input(source) for source in (*corpus.train, *corpus.valid, *corpus.test))
            if reads_stdin or not _was_made_from(partial, inputs):
                shutil.rmtree(partial, ignore_errors=True)
                for stage in ("clean", "score", "augment", "encode"):
                    (partial / stage).mkdir(parents=True)
                write_json(partial / JOB_FILE, inputs)
            with ProcessPool(workers) as pool:
                _Pipeline(corpus, partial, settings, pool, progress).run(tokenizer, scorer)
            write_json(partial / "finished" / JOB_FILE, inputs)
            publish_folder(partial / "finished", out)
            shutil.rmtree(partial)
    except CorpusError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    except OSError as error:
        raise DragomanError(
            f"{out} cannot be written ({error.strerror or error}): {write_remedy(error.strerror)} and run the same "
            "command again, which resumes, or choose another --out."
        ) from error
    return True


def _check_replaceable(out: Path, overwrite: bool) -> None:
    """Allow only a data set to be replaced, and only with --overwrite."""
    if not (out / MANIFEST_FILE).is_file() and not (out.is_dir() and not any(out.iterdir())):
        raise DragomanError(f"{out} exists and is not a data set: choose another --out.")
    if (out / MANIFEST_FILE).is_file() and not overwrite:
        raise DragomanError(
            f"{out} exists and was made from other inputs or settings: choose another --out, or add --overwrite."
        )


def _describe_inputs(corpus: Corpus, settings: Settings, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Everything that the result depends on."""
    inputs = {
        "dragoman": __version__,
        "name": corpus.name,
        "languages": [corpus.languages.source, corpus.languages.target],
        "settings": settings.model_dump(mode="json", include=PREPARATION_SECTIONS),
        "tokenizer": None if tokenizer is None else hashlib.sha256(tokenizer.model).hexdigest(),
        "sources": {
            split: [
                [
                    *(source.name, source.format, source.weight, fingerprint(source)),
                    *([] if source.encoding is None else [source.encoding]),
                    *([f"synthetic {source.synthetic}"] if source.synthetic else []),
                ]
                for source in getattr(corpus, split)
            ]
            for split in SPLITS
        },
    }
    return dict(json.loads(json.dumps(inputs)))


def _was_made_from(folder: Path, inputs: dict[str, Any]) -> bool:
    try:
        return bool(json.loads((folder / JOB_FILE).read_bytes()) == inputs)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _exclusive(partial: Path) -> Iterator[None]:
    """Let only one process at a time prepare a data set."""
    lock_file = partial.with_name(f".{partial.name}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(lock_file, wait=False))
        except BlockingIOError:
            raise DragomanError(
                f"{partial} is in use by another process: wait until it has finished, or choose another --out."
            ) from None
        stack.callback(lock_file.unlink, missing_ok=True)
        yield


class _Pipeline:
    """Runs all stages of a preparation."""

    def __init__(self, corpus: Corpus, folder: Path, settings: Settings, pool: ProcessPool, progress: Progress) -> None:
        self._corpus = corpus
        self._finished = folder / "finished"
        self._settings = settings
        self._pool = pool
        self._progress = progress
        self._job = PreparationJob(folder, corpus.languages, settings)

    def run(self, given_tokenizer: Tokenizer | None, scorer: PairScorer | None) -> None:
        evaluation: dict[str, TextPairs] = {
            "valid": self._read_evaluation(self._corpus.valid),
            "test": self._read_evaluation(self._corpus.test),
        }
        blocks = list(self._clean())
        keep, duplicates = drop_duplicates(self._job, blocks, evaluation, self._progress)
        selected: list[Rules] = [{"duplicate": count} if self._job.uses("duplicate") else {} for count in duplicates]
        min_score = None
        if scorer is not None and self._job.uses(scorer.rule) and any(mask.any() for mask in keep):
            low, min_score = drop_low_scores(self._job, keep, scorer, self._progress)
            selected = [rules | {scorer.rule: count} for rules, count in zip(selected, low, strict=True)]
        is_synthetic = [bool(self._corpus.train[block.source].synthetic) for block in blocks]
        held_out = hold_out(self._job, keep, evaluation, is_synthetic)
        if not any(mask.any() for mask in keep):
            raise self._no_pairs_left(blocks, selected)
        self._finished.mkdir(exist_ok=True)
        remove_drafts(self._finished)
        tokenizer_path = self._finished / TOKENIZER_FILE
        selected = [rules | copies for rules, copies in zip(selected, self._augment(keep), strict=True)]
        self._make_tokenizer(keep, given_tokenizer, tokenizer_path)
        encoded = self._encode(blocks, keep, held_out, tokenizer_path)
        for block, valid_positions in zip(encoded, held_out["valid"], strict=True):
            evaluation["valid"] += block.held_out[: len(valid_positions)]
            evaluation["test"] += block.held_out[len(valid_positions) :]

        tokenizer = Tokenizer.load(tokenizer_path)
        splits = {"train": sum((block.written for block in encoded), TextCounts())}
        if not splits["train"].pairs:
            raise self._no_pairs_left(blocks, selected)
        for split, pairs in evaluation.items():
            if pairs:
                splits[split] = self._write_evaluation(split, pairs, tokenizer)
        sources = report_sources(self._corpus, blocks, encoded, selected)
        manifest = build_manifest(
            self._finished, self._corpus, self._settings, tokenizer, splits, sources, evaluation, min_score
        )
        write_json(self._finished / MANIFEST_FILE, manifest.to_json())

    def _read_evaluation(self, sources: Sequence[Source]) -> TextPairs:
        """Read every line in order, without cleaning: scores must be comparable with published ones.

        Only carriage returns become spaces, which changes no score: other programs take them for the end of a line.
        """
        return [
            (_decode_evaluation(source_side, source, number, 0), _decode_evaluation(target_side, source, number, -1))
            for source in sources
            for number, (source_side, target_side) in enumerate(read_pairs(source, self._corpus.languages), 1)
        ]

    def _clean(self) -> Iterator[SourceBlock]:
        source_of_block: list[int] = []

        def calls() -> Iterator[tuple[PreparationJob, int, bytes, bytes]]:
            for number, source in enumerate(self._corpus.train):
                pairs = read_pairs(source, self._corpus.languages)
                while block := list(itertools.islice(pairs, BLOCK_PAIRS)):
                    source_text, target_text = (b"\n".join((*lines, b"")) for lines in zip(*block, strict=True))
                    source_of_block.append(number)
                    yield self._job, len(source_of_block) - 1, source_text, target_text

        done = 0
        for index, cleaned in enumerate(self._pool.map(clean_block, calls())):
            done += cleaned.raw_pairs
            self._progress("Cleaning pairs", done, None)
            yield SourceBlock(source_of_block[index], cleaned)

    def _augment(self, keep: Sequence[Mask]) -> list[Rules]:
        if not self._settings.augmentation.is_active:
            return [{} for _ in keep]
        augmented = []
        for rules in self._pool.map(augment_block, ((self._job, index, mask) for index, mask in enumerate(keep))):
            augmented.append(rules)
            self._progress("Augmenting", len(augmented), len(keep))
        return augmented

    def _make_tokenizer(self, keep: Sequence[Mask], given: Tokenizer | None, path: Path) -> None:
        if given is not None:
            with replacing(path) as temporary:
                temporary.write_bytes(given.model)
        if path.exists():
            return
        total = sum(int(mask.sum()) for mask in keep)
        fraction = self._settings.tokenizer.sample_pairs / max(1, total)
        groups = [
            range(first, min(first + BLOCKS_PER_WORD_COUNT, len(keep)))
            for first in range(0, len(keep), BLOCKS_PER_WORD_COUNT)
        ]
        calls = (
            (self._job, {index: sample_pairs(self._job, index, keep[index], fraction) for index in group})
            for group in groups
        )
        words: Counter[str] = Counter()
        for group, part in zip(groups, self._pool.map(count_block_words, calls), strict=True):
            tokenizers.merge_word_counts(words, part)
            self._progress("Counting words", group.stop, len(keep))
        self._progress("Training the tokenizer", 0, None)
        with replacing(path) as temporary:
            tokenizers.train(words, self._settings.tokenizer, temporary)

    def _encode(
        self,
        blocks: Sequence[SourceBlock],
        keep: Sequence[Mask],
        held_out: Mapping[str, list[list[int]]],
        tokenizer: Path,
    ) -> list[EncodedBlock]:
        weights = [self._corpus.train[block.source].weight for block in blocks]
        total = sum(float(mask.sum()) * weight for mask, weight in zip(keep, weights, strict=True))
        shards = max(1, -(-int(total) // SHARD_PAIRS))
        encoded: list[EncodedBlock] = []
        calls = (
            (self._job, index, mask, held_out["valid"][index] + held_out["test"][index], weight, tokenizer, shards)
            for index, (mask, weight) in enumerate(zip(keep, weights, strict=True))
        )
        for block in self._pool.map(encode_block, calls):
            encoded.append(block)
            self._progress("Encoding", len(encoded), len(blocks))
        folder = self._finished / "train"
        assembly = self._pool.map(assemble_shard, ((self._job, shard, len(blocks), folder) for shard in range(shards)))
        for shard, _ in enumerate(assembly):
            self._progress("Writing shards", shard + 1, shards)
        return encoded

    def _write_evaluation(self, split: str, pairs: TextPairs, tokenizer: Tokenizer) -> TextCounts:
        for path, side in zip(text_files(self._finished, split, self._corpus.languages), (0, 1), strict=True):
            with replacing(path) as temporary:
                temporary.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8", newline="\n")
        return write_evaluation_shard(self._finished / split, tokenizer, pairs)

    def _no_pairs_left(self, blocks: Sequence[SourceBlock], selected: Sequence[Rules]) -> CorpusError:
        rules: Rules = {}
        for block, dropped in zip(blocks, selected, strict=True):
            merge_counts(rules, {**block.cleaned.rules, **dropped})
        rule = max(rules, key=lambda rule: rules[rule].pairs, default="tokens")
        settings, source = self._settings.cleaning.model_dump(), self._corpus.train[0]
        return CorpusError(
            f"no training pair is left after cleaning; the rule '{rule}' dropped the most: "
            + remedy_of(rule, settings, source, self._corpus.languages)
        )


def _decode_evaluation(line: bytes, source: Source, number: int, side: int) -> str:
    is_line = source.format in ("lines", "tsv")  # Elsewhere a pair is not a line.
    return decode_line(line, source.paths[side], number if is_line else None).replace("\r", " ")
