"""Text in, text out: lines of any content and length to token sequences for a search, and back.

The output has as many lines as the input: a line without words gives an empty line, and one that is too long for the
model is split into segments. Nothing here needs torch: CTranslate2 exports run without it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.corpus.sources import Languages
from dragoman.corpus.text_normalization import collapse_whitespace, remove_control_characters
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.settings import DecodingSettings

MAX_SEGMENT_TOKENS = 250
"""Most source tokens of a segment: models have seen few longer sentences in training, and translate them badly."""
LOOK_AHEAD = 1024
"""Lines that a stream reads before it returns the first translation: enough to sort by length."""

_SURROGATES = re.compile("[\ud800-\udfff]")
# Everything that some program treats as the end of a line, and all other control characters.
_LINE_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Where a long line may be split, the best boundaries first. The lookbehinds let a pattern start only once within a run
# of its characters: a search from each of them would take quadratic time.
_BOUNDARIES = (
    re.compile("(?<![.!?…])[.!?…]+[\"'»”’)\\]]*\\s+|[。！？]+[」』）”]*"),
    re.compile("(?<![,;:–—])[,;:–—]+\\s+|[、，；：]+"),
    re.compile("\\s+"),
)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    score: float
    """Log-probability over the length penalty; for a line in several segments, their mean."""


@dataclass(frozen=True)
class Translation:
    """The best translation of a line, and alternatives."""

    text: str
    score: float
    alternatives: tuple[Candidate, ...] = ()
    """The next best translations with different text, best first."""

    def candidates(self, n_best: int) -> list[Candidate]:
        """The translation and its alternatives, at most `n_best`."""
        return [Candidate(self.text, self.score), *self.alternatives][:n_best]


@dataclass(frozen=True)
class LineSegment:
    """Part of a line that is translated as one sequence."""

    text: str
    separator: str
    """Text between this segment and the next."""


SourceTokens = tuple[int, ...]
"""The tokens of a segment, with the end token."""

Attention = npt.NDArray[np.float32]
"""Cross-attention weights, [target tokens, source tokens], both without the end token."""


class ScoredTokens(Protocol):
    """Result of a search: the tokens of a translation without special tokens, and the score that ranks it."""

    @property
    def tokens(self) -> list[int]: ...

    @property
    def score(self) -> float: ...


Found = Sequence[Sequence[ScoredTokens]]
"""The translations of each segment of a line, best first."""


@dataclass(frozen=True)
class EncodedLines:
    """Lines as a search takes them."""

    segments: list[list[LineSegment]]
    """Of each line; none where it has no tokens."""
    sources: list[list[SourceTokens]]
    """Of each segment."""


class LineTranslator(ABC):
    """Translates lines; subclasses implement the search."""

    look_ahead = LOOK_AHEAD

    def __init__(self, tokenizer: Tokenizer, options: DecodingSettings, languages: Languages | None) -> None:
        self.tokenizer, self.options, self.languages = tokenizer, options, languages

    @abstractmethod
    def search(self, sources: Iterable[SourceTokens], n_best: int) -> Mapping[SourceTokens, Sequence[ScoredTokens]]:
        """The best translations of each distinct source, best first."""

    @abstractmethod
    def attention(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[Attention]:
        """Cross-attention of given translations."""

    @abstractmethod
    def log_probabilities(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[list[float]]:
        """Log-probability of each token of given translations, with the end token."""

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line."""
        return [translation.text for translation in self.translate_scored(lines)]

    def translate_scored(self, lines: Sequence[str], n_best: int = 1) -> list[Translation]:
        """Translations with scores and up to `n_best - 1` alternatives each."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines: pass a list, as in translate([text]).")
        return self.find_translations(lines, n_best)

    def find_translations(self, lines: Sequence[str], n_best: int) -> list[Translation]:
        """The same for lines of which not every translation is used: terms of a glossary are not counted."""
        encoded = self.encode_lines(lines)
        found = self.search_lines(encoded, n_best)
        return [self.join(*line) for line in zip(encoded.segments, found, strict=True)]

    def encode_lines(self, lines: Iterable[str]) -> EncodedLines:
        """Split lines into segments, and encode these."""
        encode = cache(self.tokenizer.encode)  # Most lines are one segment, whose tokens were counted already.
        segments = [
            split_line(normalize_line(line), lambda text: len(encode(text)), MAX_SEGMENT_TOKENS) for line in lines
        ]
        eos_id = self.tokenizer.eos_id
        return EncodedLines(segments, [[(*encode(part.text), eos_id) for part in line] for line in segments])

    def search_lines(self, lines: EncodedLines, n_best: int) -> list[Found]:
        """The best translations of all segments of each line."""
        found = self.search({source for line in lines.sources for source in line}, n_best)
        return [[found[source] for source in line] for line in lines.sources]

    def translate_stream(
        self, lines: Iterable[str], n_best: int = 1, look_ahead: int | None = None
    ) -> Iterator[Translation]:
        """Translate lines as they are read, in order, with at most `look_ahead` lines in memory."""
        remaining = iter(lines)
        while block := list(islice(remaining, look_ahead or self.look_ahead)):
            yield from self.translate_scored(block, n_best)

    def join(self, segments: Sequence[LineSegment], found: Found) -> Translation:
        """Join the translations of a line's segments: the n-th best of the line is the n-th best of each."""
        if not segments:
            return Translation("", 0.0)
        candidates: dict[str, Candidate] = {}
        for rank in range(max(map(len, found))):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            texts = [self.tokenizer.decode(hypothesis.tokens) for hypothesis in chosen]
            joined = to_single_line(
                "".join(text + segment.separator for text, segment in zip(texts, segments, strict=True))
            )
            score = sum(hypothesis.score for hypothesis in chosen) / len(chosen)
            candidates.setdefault(joined, Candidate(joined, score))
        best, *others = candidates.values()
        return Translation(best.text, best.score, tuple(others))


def normalize_line(line: str) -> str:
    """The line in the form of the training text: one line, single spaces, no control characters."""
    return collapse_whitespace(remove_control_characters(collapse_whitespace(_SURROGATES.sub("\ufffd", line))))


def to_single_line(text: str) -> str:
    """Replace everything that ends a line. Models can generate any byte, line breaks included."""
    return _LINE_BREAKS.sub(" ", text).strip()


def split_line(text: str, count_tokens: Callable[[str], int], limit: int) -> list[LineSegment]:
    """Segments of at most about `limit` tokens, split at sentence ends, else commas, else spaces, else anywhere.

    Segments and separators together are the text again. Text without tokens has no segments.
    """
    segments = []
    begin = 0
    for length, size in _split(text, count_tokens, limit, 0):
        part = text[begin : begin + length]
        begin += length
        if size:
            segments.append(LineSegment(part.rstrip(), " " if part != part.rstrip() else ""))
    return segments


def _split(text: str, count_tokens: Callable[[str], int], limit: int, level: int) -> list[tuple[int, int]]:
    """Lengths of the parts, in characters and in tokens. Parts that fit into the limit together are merged again."""
    size = count_tokens(text)
    if size <= limit or len(text) <= 1:
        return [(len(text), size)]
    if level < len(_BOUNDARIES):
        ends = [match.end() for match in _BOUNDARIES[level].finditer(text)]
    else:
        width = len(text) // math.ceil(size / limit)
        ends = list(range(max(width, 1), len(text), max(width, 1)))
    bounds = [0, *(end for end in ends if end < len(text)), len(text)]
    parts: list[tuple[int, int]] = []
    for begin, end in pairwise(bounds):
        for length, part_size in _split(text[begin:end], count_tokens, limit, min(level + 1, len(_BOUNDARIES))):
            if parts and parts[-1][1] + part_size <= limit:
                parts[-1] = (parts[-1][0] + length, parts[-1][1] + part_size)
            else:
                parts.append((length, part_size))
    return parts


def make_batches(sources: Iterable[SourceTokens], batch_tokens: int) -> Iterator[list[SourceTokens]]:
    """Batches of similar length with at most `batch_tokens`, padding included, or one source. The longest come first:
    if the memory does not suffice, the first batch fails."""
    batch: list[SourceTokens] = []
    for source in sorted(sources, key=lambda source: (-len(source), source)):
        if batch and (len(batch) + 1) * len(batch[0]) > batch_tokens:
            yield batch
            batch = []
        batch.append(source)
    if batch:
        yield batch
