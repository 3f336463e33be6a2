"""Text in, text out, whatever searches: lines of any content and length to a searcher's token sequences, and back.

As many lines come out as went in, each of them one line: a line without words comes out empty, and one that is too long
for the model is translated piece by piece. Nothing here needs torch: exported models run without it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol

from dragoman.corpus.cleaning import collapse_whitespace, remove_control_characters
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.settings import DecodingSettings

LONGEST_PIECE = 250
"""Tokens of source that are translated at once: models have hardly seen longer sentences, and lose track in them."""
LOOK_AHEAD = 1024
"""Lines that a stream reads before it gives the first translation: enough to sort by length."""

_SURROGATES = re.compile("[\ud800-\udfff]")
# All that some program or other takes for the end of a line, and the other controls with it.
_LINE_BREAKERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Where a long line may be cut, from the best places to the worst.
_CUTS = (
    re.compile("[.!?…]+[\"'»”’)\\]]*\\s+|[。！？]+[」』）”]*"),
    re.compile("[,;:–—]+\\s+|[、，；：]+"),
    re.compile("\\s+"),
)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    score: float
    """Log-probability over the length penalty; of a line in several pieces, their mean."""


@dataclass(frozen=True)
class Translation:
    """What was found for a line."""

    text: str
    score: float
    alternatives: tuple[Candidate, ...] = ()
    """The next best that read differently, best first."""


@dataclass(frozen=True)
class Piece:
    """Part of a line that is translated at once."""

    text: str
    glue: str
    """What stood between this piece and the next."""


Source = tuple[int, ...]
"""The tokens of a piece, its end mark among them."""


class Found(Protocol):
    """What a search gives: a translation's tokens without marks, and what translations are compared by."""

    @property
    def tokens(self) -> list[int]: ...

    @property
    def score(self) -> float: ...


class LineTranslator(ABC):
    """Translates lines with whatever finds the best token sequences."""

    look_ahead = LOOK_AHEAD

    def __init__(self, tokenizer: Tokenizer, options: DecodingSettings, languages: Languages | None) -> None:
        self.tokenizer, self.options, self.languages = tokenizer, options, languages

    @abstractmethod
    def search(self, sources: Iterable[Source], n_best: int) -> Mapping[Source, Sequence[Found]]:
        """The best translations of each different source, best first."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line."""
        return [translation.text for translation in self.translate_scored(lines)]

    def translate_scored(self, lines: Sequence[str], n_best: int = 1) -> list[Translation]:
        """Translations with scores, and up to `n_best - 1` alternatives each."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines: put the text in brackets, as in translate([text]).")
        pieces = [split(tidy(line), self._count, LONGEST_PIECE) for line in lines]
        sources = [[(*self.tokenizer.encode(piece.text), self.tokenizer.eos_id) for piece in line] for line in pieces]
        found = self.search({source for line in sources for source in line}, n_best)
        return [
            self._join(line, [found[source] for source in line_sources])
            for line, line_sources in zip(pieces, sources, strict=True)
        ]

    def translate_stream(
        self, lines: Iterable[str], n_best: int = 1, look_ahead: int | None = None
    ) -> Iterator[Translation]:
        """Translates while it reads, in order: never more than `look_ahead` lines are held."""
        remaining = iter(lines)
        while block := list(islice(remaining, look_ahead or self.look_ahead)):
            yield from self.translate_scored(block, n_best)

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def _join(self, pieces: Sequence[Piece], found: Sequence[Sequence[Found]]) -> Translation:
        """The n-th best of a line in several pieces is made of the n-th best of each."""
        if not pieces:
            return Translation("", 0.0)
        candidates: dict[str, Candidate] = {}
        for rank in range(max(map(len, found))):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            texts = [self.tokenizer.decode(hypothesis.tokens) for hypothesis in chosen]
            joined = one_line("".join(text + piece.glue for text, piece in zip(texts, pieces, strict=True)))
            score = sum(hypothesis.score for hypothesis in chosen) / len(chosen)
            candidates.setdefault(joined, Candidate(joined, score))
        best, *others = candidates.values()
        return Translation(best.text, best.score, tuple(others))


def tidy(line: str) -> str:
    """A line as the model's training text was: one line, single spaces, no control characters."""
    return collapse_whitespace(remove_control_characters(collapse_whitespace(_SURROGATES.sub("\ufffd", line))))


def one_line(text: str) -> str:
    """Text that no program takes for two lines. Models can spell any byte, line ends among them."""
    return _LINE_BREAKERS.sub(" ", text).strip()


def split(text: str, count: Callable[[str], int], limit: int) -> list[Piece]:
    """Pieces of about `limit` tokens at most, cut at sentence ends, else at commas, else at spaces, else anywhere.

    Nothing is left out: the pieces with their glue are the text again. Text without tokens has no pieces.
    """
    parts = _cut(text, count, limit, 0)
    return [Piece(part.rstrip(), " " if part != part.rstrip() else "") for part, size in parts if size]


def _cut(text: str, count: Callable[[str], int], limit: int, level: int) -> list[tuple[str, int]]:
    """Parts with their token counts."""
    size = count(text)
    if size <= limit or len(text) <= 1:
        return [(text, size)]
    if level < len(_CUTS):
        ends = [match.end() for match in _CUTS[level].finditer(text)]
    else:
        width = len(text) // math.ceil(size / limit)
        ends = list(range(max(width, 1), len(text), max(width, 1)))
    bounds = [0, *(end for end in ends if end < len(text)), len(text)]
    parts: list[tuple[str, int]] = []
    for begin, end in pairwise(bounds):
        finer = _cut(text[begin:end], count, limit, min(level + 1, len(_CUTS)))
        for part, part_size in finer:
            if parts and parts[-1][1] + part_size <= limit:
                parts[-1] = (parts[-1][0] + part, parts[-1][1] + part_size)
            else:
                parts.append((part, part_size))
    return parts


def batches(sources: Iterable[Source], batch_tokens: int) -> Iterator[list[Source]]:
    """Batches of at most `batch_tokens`, padding counted, or one source. The longest come first: if memory does not
    suffice, that shows at once."""
    batch: list[Source] = []
    for source in sorted(sources, key=lambda source: (-len(source), source)):
        if batch and (len(batch) + 1) * len(batch[0]) > batch_tokens:
            yield batch
            batch = []
        batch.append(source)
    if batch:
        yield batch
