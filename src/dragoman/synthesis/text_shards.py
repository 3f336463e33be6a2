"""Texts as shards of consecutive lines. Both passes over a text are streams: memory is bounded by a shard."""

import hashlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from dragoman.corpus.line_formats import LineReader
from dragoman.corpus.source_arguments import STANDARD_INPUT
from dragoman.decoding.line_translator import normalize_line
from dragoman.errors import DragomanError
from dragoman.progress_callback import Progress

_BLOCK_LINES = 10000
_DIGEST_BYTES = 8
"""Of the hash after each block: a billion lines take about 5 MB."""


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
class ScannedText:
    """A text that was read once, and will be read again."""

    path: Path
    summary: TextSummary
    digests: tuple[bytes, ...]
    """The beginning of the hash of all lines up to the end of each block."""

    def lines(self) -> Iterator[bytes]:
        """The same lines again. Raises an error before the first block that is another one."""
        digest, read = hashlib.sha256(), 0
        for block in _blocks(iter(LineReader(self.path)), _BLOCK_LINES):
            if self.digests[read : read + 1] != (_add_block(digest, block),):
                raise self._changed()
            read += 1
            yield from block
        if read < len(self.digests):
            raise self._changed()

    def _changed(self) -> DragomanError:
        return DragomanError(
            f"{self.path} has changed since the synthesis began to read it: restore it and run the same command again "
            "to resume, or choose another --out for the text as it is now."
        )


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


def scan_texts(paths: Sequence[Path], progress: Progress) -> list[ScannedText]:
    """Count and hash the lines of each text."""
    scanned: list[ScannedText] = []
    earlier_lines, has_words = 0, False
    for path in paths:
        digest, digests, lines = hashlib.sha256(), list[bytes](), 0
        for block in _blocks(iter(LineReader(path)), _BLOCK_LINES):
            digests.append(_add_block(digest, block))
            lines += len(block)
            has_words = has_words or any(normalize_line(line.decode("utf-8", "replace")) for line in block)
            progress("Counting lines", earlier_lines + lines, None)
        summary = TextSummary(str(path), path.stat().st_size, lines, digest.hexdigest())
        scanned.append(ScannedText(path, summary, tuple(digests)))
        earlier_lines += lines
    if not has_words:
        names = " and ".join(map(str, paths))
        raise DragomanError(f"{names} has no line that can be translated: give a text with one sentence per line.")
    return scanned


def read_shards(texts: Sequence[ScannedText], shard_lines: int, finished: Container[int]) -> Iterator[TextShard]:
    """The shards of all texts that are not finished, in order. Invalid UTF-8 is replaced: no line may be lost."""
    lines = chain.from_iterable(text.lines() for text in texts)
    for number, block in enumerate(_blocks(lines, shard_lines)):
        if number not in finished:
            text = tuple(line.decode("utf-8", "replace") for line in block)
            yield TextShard(number, number * shard_lines, text)


def count_shards(lines: int, shard_lines: int) -> int:
    return -(-lines // shard_lines)


def _blocks(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while block := list(islice(lines, size)):
        yield block


def _add_block(digest: "hashlib._Hash", block: Sequence[bytes]) -> bytes:
    digest.update(b"\n".join(block) + b"\n")
    return digest.digest()[:_DIGEST_BYTES]
