"""Builds the manifest of a prepared data set from the results of its blocks and the files on disk."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from dragoman import __version__
from dragoman.corpus.block_tasks import EncodedBlock, Rules, SourceBlock, TextPairs
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.cleaning import merge_counts
from dragoman.corpus.dataset import (
    JOB_FILE,
    MANIFEST_FILE,
    FileReport,
    Manifest,
    RuleReport,
    SourceReport,
    TextCounts,
    compute_identity,
)
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.settings import PREPARATION_SECTIONS, Settings

UNHASHED_FILES = frozenset({MANIFEST_FILE, JOB_FILE})
"""The manifest cannot contain its own hash; the job file has timestamps, which are not part of the data."""


def build_manifest(
    folder: Path,
    corpus: Corpus,
    settings: Settings,
    tokenizer: Tokenizer,
    splits: Mapping[str, TextCounts],
    sources: Sequence[SourceReport],
    evaluation: Mapping[str, TextPairs],
    min_score: float | None,
) -> Manifest:
    """The manifest of the data set in `folder`, whose other files are complete."""
    files = _hash_files(folder)
    return Manifest(
        name=corpus.name,
        identity=compute_identity(files),
        languages=corpus.languages,
        pieces=tokenizer.vocab_size,
        token_dtype=tokenizer.dtype.name,
        splits=splits,
        sources=sources,
        evaluation_sources={
            split: [source.name for source in sources]
            or (["held out of the training pairs"] if evaluation[split] else [])
            for split, sources in (("valid", corpus.valid), ("test", corpus.test))
        },
        files=files,
        settings=settings.model_dump(mode="json", include=PREPARATION_SECTIONS),
        dragoman=__version__,
        min_score=min_score,
    )


def report_sources(
    corpus: Corpus,
    blocks: Sequence[SourceBlock],
    encoded: Sequence[EncodedBlock],
    selected: Sequence[Rules],
) -> list[SourceReport]:
    """Counts before and after cleaning, and the effect of each rule, for each source of training pairs."""
    reports = []
    for number, source in enumerate(corpus.train):
        source_blocks = [index for index, block in enumerate(blocks) if block.source == number]
        rules: Rules = {}
        for index in source_blocks:
            merge_counts(rules, blocks[index].cleaned.rules)
            merge_counts(rules, selected[index])
            merge_counts(rules, encoded[index].rules)
        reports.append(
            SourceReport(
                name=source.name,
                files=[path.name for path in source.paths],
                format=source.format,
                weight=source.weight,
                licence=source.licence,
                before=sum((encoded[index].before for index in source_blocks), TextCounts()),
                after=sum((encoded[index].after for index in source_blocks), TextCounts()),
                held_out=sum(len(encoded[index].held_out) for index in source_blocks),
                rules={rule: RuleReport(count.pairs, count.samples) for rule, count in rules.items()},
                synthetic=source.synthetic,
            )
        )
    return reports


def _hash_files(folder: Path) -> dict[str, FileReport]:
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in UNHASHED_FILES):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(folder).as_posix()] = FileReport(path.stat().st_size, digest)
    return files
