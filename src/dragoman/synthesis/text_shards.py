"""Texts as shards of consecutive lines. Both passes over a text are streams: memory is bounded by a shard."""

import hashlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from dragoman.corpus.line_formats import LineReader
from dragoman.corpus.source_arguments import STANDARD_INPUT
from dragoman.errors import DragomanError
from dragoman.progress_callback import Progress

_BLOCK_LINES = 10000


@dataclass(frozen=True)
class TextSummary:
    """Size and content of a text file."""

    path: str
    size_bytes: int
    """Of the file as it is stored, perhaps compressed."""
    lines: int
    sha256: str
    """Of its decompressed lines."""


@dataclass(frozen=True)
class TextShard:
    """Consecutive lines of the texts, which are counted through."""

    number: int
    first_line: int
    lines: tuple[str, ...]


def check_texts(paths: Sequence[Path]) -> None:
    """Raise an error that names all texts that cannot be read twice."""
    if STANDARD_INPUT in paths:
        raise DragomanError(
            "Standard input cannot be read again after an interruption: write the text to a file, which may be "
            "compressed, and give its name."
        )
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise DragomanError(f"There is no file {' and no file '.join(missing)}: check the path.")


def summarize_texts(paths: Sequence[Path], progress: Progress) -> list[TextSummary]:
    """Count and hash the lines of each text."""
    summaries: list[TextSummary] = []
    for path in paths:
        digest, lines = hashlib.sha256(), 0
        for block in _blocks(iter(LineReader(path)), _BLOCK_LINES):
            digest.update(b"\n".join(block) + b"\n")
            lines += len(block)
            progress("Counting lines", sum(each.lines for each in summaries) + lines, None)
        summaries.append(TextSummary(str(path), path.stat().st_size, lines, digest.hexdigest()))
    if not any(summary.lines for summary in summaries):
        raise DragomanError(f"{' and '.join(map(str, paths))} has no lines: give a text with one sentence per line.")
    return summaries


def read_shards(paths: Sequence[Path], shard_lines: int, finished: Container[int]) -> Iterator[TextShard]:
    """The shards of all texts that are not finished, in order. Invalid UTF-8 is replaced: no line may be lost."""
    lines = chain.from_iterable(LineReader(path) for path in paths)
    for number, block in enumerate(_blocks(lines, shard_lines)):
        if number not in finished:
            text = tuple(line.decode("utf-8", "replace") for line in block)
            yield TextShard(number, number * shard_lines, text)


def count_shards(lines: int, shard_lines: int) -> int:
    return -(-lines // shard_lines)


def _blocks(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while block := list(islice(lines, size)):
        yield block
