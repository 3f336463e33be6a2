"""Finished shards on disk: one compressed file each, written atomically, so that none is ever translated again.

A file holds a line of JSON about the shard, and one for each line of the text: `[line, [[score, translation], ...]]`,
with a third field where a backward model has scored the translation. Scores and all candidates are kept: with other
filters, or another tag, a corpus is made again without a translation.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import zstandard

from dragoman.corpus.model_filter import SCORE_DIGITS
from dragoman.decoding.line_translator import Candidate
from dragoman.errors import DragomanError
from dragoman.files import remove_drafts, write_atomic
from dragoman.text_lines import split_lines

_SUFFIX = ".jsonl.zst"


@dataclass(frozen=True)
class ShardHeader:
    """Where and how a shard was translated."""

    number: int
    first_line: int
    lines: int
    host: str
    machine: str
    """Engine and processor. The same lines have the same translations on equal ones."""
    translating_s: float
    real_scores: list[float] = field(default_factory=list)
    """A sample of the scores by both directions."""
    mismatched_scores: list[float] = field(default_factory=list)
    """The same of lines with the translations of others: a threshold is found between both."""


@dataclass(frozen=True)
class StoredCandidate(Candidate):
    """A translation as it is stored."""

    agreement: float | None = None
    """Score by both directions, if there is a backward model."""


TranslatedLine = tuple[str, list[StoredCandidate]]


def pack_shard(header: ShardHeader, translated: list[TranslatedLine]) -> bytes:
    """The content of a shard's file."""
    lines = [json.dumps(asdict(header))]
    for text, candidates in translated:
        lines.append(json.dumps([text, list(map(_fields, candidates))], ensure_ascii=False))
    content = "".join(f"{line}\n" for line in lines).encode()
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


class ShardStore:
    """The folder of finished shards."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Create the folder, and remove what a killed process left. Only for the process that writes there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(self._folder)

    def finished(self) -> set[int]:
        return {int(path.name.removesuffix(_SUFFIX)) for path in self._folder.glob(f"*{_SUFFIX}")}

    def write(self, number: int, content: bytes) -> None:
        write_atomic(self._path(number), content)

    def read(self, number: int) -> tuple[ShardHeader, Iterator[TranslatedLine]]:
        path = self._path(number)
        try:
            content = zstandard.ZstdDecompressor().decompress(path.read_bytes())
            first, *lines = split_lines(content.decode())
            header = ShardHeader(**json.loads(first))
        except (zstandard.ZstdError, ValueError, TypeError):
            raise _damaged(path) from None
        return header, map(_parse_line, lines)

    def read_header(self, number: int) -> ShardHeader:
        """The first line alone: the rest is not decompressed."""
        path = self._path(number)
        try:
            with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as content:
                return ShardHeader(**json.loads(io.BufferedReader(content).readline()))
        except (zstandard.ZstdError, ValueError, TypeError):
            raise _damaged(path) from None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}{_SUFFIX}"


def _damaged(path: Path) -> DragomanError:
    return DragomanError(f"{path} is damaged: remove it, and run the same command again.")


def _fields(candidate: StoredCandidate) -> list[float | str]:
    fields: list[float | str] = [round(candidate.score, SCORE_DIGITS), candidate.text]
    return fields if candidate.agreement is None else [*fields, candidate.agreement]


def _parse_line(line: str) -> TranslatedLine:
    text, scored = json.loads(line)
    return text, [StoredCandidate(translation, score, *agreement) for score, translation, *agreement in scored]
