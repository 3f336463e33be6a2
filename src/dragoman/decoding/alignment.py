"""Alignment of translations with their sources, from the model's cross-attention."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.line_translator import Attention, LineSegment, LineTranslator, normalize_line, to_single_line

MIN_WEIGHT = 0.02
"""Weights below it are noise: attention never is exactly 0."""

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class AlignmentLink:
    """Characters of a source, and characters of its translation that translate them."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    weight: float = 1.0
    """Share of the target characters' attention, from 0 to 1."""

    def shifted(self, source: int, target: int) -> "AlignmentLink":
        """The same link in texts of which these are parts that begin at the given positions."""
        return AlignmentLink(
            self.source_start + source, self.source_end + source, self.target_start + target, self.target_end + target,
            self.weight,
        )  # fmt: skip


@dataclass(frozen=True)
class AlignedTranslation:
    """A translation and its links to the source."""

    text: str
    links: tuple[AlignmentLink, ...]


def translate_aligned(translator: LineTranslator, lines: Sequence[str]) -> list[AlignedTranslation]:
    """The best translation of each line, with its links."""
    found = translator.search_lines(lines, n_best=1)
    targets = [[hypotheses[0].tokens for hypotheses in line.hypotheses] for line in found]
    pairs = {
        (source, tuple(target)): None
        for line, line_targets in zip(found, targets, strict=True)
        for source, target in zip(line.sources, line_targets, strict=True)
    }
    attention = dict(zip(pairs, translator.attention(list(pairs)), strict=True))
    return [
        align_segments(
            translator.tokenizer, text, line.segments, line_targets,
            [attention[pair, tuple(target)] for pair, target in zip(line.sources, line_targets, strict=True)],
        )
        for text, line, line_targets in zip(lines, found, targets, strict=True)
    ]  # fmt: skip


def align_segments(
    tokenizer: Tokenizer,
    line: str,
    segments: Sequence[LineSegment],
    targets: Sequence[Sequence[int]],
    attention: Sequence[Attention],
) -> AlignedTranslation:
    """Translation of a line whose segments were translated to the `targets`, and its links to the line as it was
    before its normalization."""
    normalized = normalize_line(line)
    links: list[AlignmentLink] = []
    joined = ""
    begin = 0
    for segment, target, weights in zip(segments, targets, attention, strict=True):
        begin = normalized.index(segment.text, begin)
        text, target_spans = tokenizer.decode_with_spans(target)
        source_spans = tokenizer.encode_with_spans(segment.text)
        found = link_tokens(segment.text, source_spans, text, target_spans, weights)
        links += (link.shifted(begin, len(joined)) for link in found)
        joined += text + segment.separator
        begin += len(segment.text)
    translation = to_single_line(joined)
    in_line, in_joined = _locate(normalized, line), _locate(translation, joined)
    return AlignedTranslation(
        translation,
        tuple(
            AlignmentLink(
                in_line[link.source_start],
                in_line[link.source_end - 1] + 1,
                bisect_left(in_joined, link.target_start),
                bisect_left(in_joined, link.target_end - 1) + 1,
                link.weight,
            )
            for link in links
        ),
    )


def link_tokens(
    source: str,
    source_spans: Sequence[tuple[int, int, int]],
    target: str,
    target_spans: Sequence[tuple[int, int, int]],
    attention: Attention,
) -> list[AlignmentLink]:
    """Links of tokens by attention. Punctuation is linked with punctuation alone: its attention says little."""
    sources, targets = _tokens_with_text(source, source_spans), _tokens_with_text(target, target_spans)
    links = []
    for row, target_start, target_end in targets:
        is_word = _has_word(target[target_start:target_end])
        candidates = [
            (float(attention[row, column]), start, end)
            for column, start, end in sources
            if is_word or not _has_word(source[start:end])
        ]
        total = sum(weight for weight, _, _ in candidates)
        links += [
            AlignmentLink(start, end, target_start, target_end, weight / total)
            for weight, start, end in candidates
            if total and weight / total >= MIN_WEIGHT
        ]
    return links


def _tokens_with_text(text: str, spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Index and span of each token, without the space before a word. Tokens that are only space are left out."""
    trimmed = []
    for index, (_, start, end) in enumerate(spans):
        part = text[start:end]
        if body := part.strip():
            begin = start + part.index(body)
            trimmed.append((index, begin, begin + len(body)))
    return trimmed


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))


def _locate(part: str, text: str) -> list[int]:
    """Position in a text of each character of a part of it, which lacks some spaces and control characters."""
    text = _SURROGATES.sub("\ufffd", text)
    positions = []
    start = 0
    for character in part:
        if character != " ":
            start = text.index(character, start) + 1
        positions.append(max(start - 1, 0))
    return positions
