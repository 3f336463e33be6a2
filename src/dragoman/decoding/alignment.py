"""Alignment of translations with their sources, from the model's cross-attention."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.corpus.tokenizer import Side, Tokenizer
from dragoman.decoding.line_translator import Attention, LineTranslator, SourceTokens, normalize_line

TokenSpan = tuple[int, int, int]
"""A token, and the start and end of the characters that it stands for."""
MAX_TOKENS = 512
"""Longer sentences are linked in order: attention takes memory that is quadratic in their length."""
MIN_WEIGHT = 0.02
"""Weights below it are noise: attention never is exactly 0."""

MIN_COPIED_LENGTH = 4
"""Shorter words are the same in two languages by chance, too."""
_COPIED = re.compile(r"\S*[^\s.,;:!?]")
_WORD_PART = re.compile(r"\w+|[^\w\s]")
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
class TokenizedPair:
    """A sentence and its translation, with the span of each token."""

    source: str
    target: str
    source_spans: Sequence[TokenSpan]
    target_spans: Sequence[TokenSpan]
    end_id: int

    @classmethod
    def encode(cls, tokenizer: Tokenizer, source: str, target: str) -> "TokenizedPair":
        return cls(
            source, target, _encode(tokenizer, source, "source"), _encode(tokenizer, target, "target"), tokenizer.eos_id
        )

    @property
    def tokens(self) -> tuple[SourceTokens, list[int]]:
        """Tokens of both sides, as a translator's `attention` takes them."""
        return (*(token for token, _, _ in self.source_spans), self.end_id), [
            token for token, _, _ in self.target_spans
        ]

    @property
    def is_too_long(self) -> bool:
        return max(len(self.source_spans), len(self.target_spans)) > MAX_TOKENS

    def link(self, attention: Attention) -> list[AlignmentLink]:
        """Links of tokens. Punctuation is linked with punctuation alone: its attention says little."""
        sources = _tokens_with_text(self.source, self.source_spans)
        links = _link_copies(self.source, self.target)
        copied = {position for link in links for position in range(link.target_start, link.target_end)}
        for row, target_start, target_end in _tokens_with_text(self.target, self.target_spans):
            if target_start in copied:
                continue
            is_word = _has_word(self.target[target_start:target_end])
            candidates = [
                (float(attention[row, column]), start, end)
                for column, start, end in sources
                if is_word or not _has_word(self.source[start:end])
            ]
            total = sum(weight for weight, _, _ in candidates)
            links += [
                AlignmentLink(start, end, target_start, target_end, weight / total)
                for weight, start, end in candidates
                if total and weight / total >= MIN_WEIGHT
            ]
        return links

    def link_in_order(self) -> list[AlignmentLink]:
        """Links of tokens by their places, as if the translation had the order of words of the source."""
        sources = _tokens_with_text(self.source, self.source_spans)
        targets = _tokens_with_text(self.target, self.target_spans)
        return [
            AlignmentLink(*sources[index * len(sources) // len(targets)][1:], start, end)
            for index, (_, start, end) in enumerate(targets)
            if sources
        ]


def compose_links(first: Sequence[AlignmentLink], second: Sequence[AlignmentLink]) -> list[AlignmentLink]:
    """Links between a source and a translation through a third text, from its links with both."""
    by_position: dict[int, list[AlignmentLink]] = {}
    for link in first:
        for position in range(link.target_start, link.target_end):
            by_position.setdefault(position, []).append(link)
    weights: dict[tuple[int, int, int, int], float] = {}
    for link in second:
        length = max(1, link.source_end - link.source_start)
        for position in range(link.source_start, link.source_end):
            for earlier in by_position.get(position, ()):
                ends = (earlier.source_start, earlier.source_end, link.target_start, link.target_end)
                weights[ends] = weights.get(ends, 0.0) + earlier.weight * link.weight / length
    return [AlignmentLink(*ends, min(weight, 1.0)) for ends, weight in weights.items() if weight >= MIN_WEIGHT]


def align(translator: LineTranslator, pairs: Sequence[tuple[str, str]]) -> list[list[AlignmentLink]]:
    """Links between sentences and their translations."""
    encoded = [TokenizedPair.encode(translator.tokenizer, *pair) for pair in pairs]
    attention = iter(translator.attention([pair.tokens for pair in encoded if not pair.is_too_long]))
    return [pair.link_in_order() if pair.is_too_long else pair.link(next(attention)) for pair in encoded]


def _encode(tokenizer: Tokenizer, text: str, side: Side) -> list[TokenSpan]:
    """Tokens of the text in the form of the training text, with their spans in the text as it is."""
    normalized = normalize_line(text)
    positions = _locate(normalized, text)
    return [
        (token, positions[start], positions[end - 1] + 1) if start < end else (token, len(text), len(text))
        for token, start, end in tokenizer.encode_with_spans(normalized, side)
    ]


def _link_copies(source: str, target: str) -> list[AlignmentLink]:
    """Links of the parts of words, numbers and addresses that both texts have unchanged, and each only once."""
    copies = []
    for text in (source, target):
        words = list(_COPIED.finditer(text))
        counts = Counter(word[0] for word in words)
        copies.append({word[0]: word.start() for word in words if counts[word[0]] == 1})
    in_source, in_target = copies
    return [
        AlignmentLink(
            in_source[word] + part.start(), in_source[word] + part.end(),
            in_target[word] + part.start(), in_target[word] + part.end(),
        )
        for word in in_source.keys() & in_target.keys()
        if len(word) >= MIN_COPIED_LENGTH or any(map(str.isdigit, word))
        for part in _WORD_PART.finditer(word)
    ]  # fmt: skip


def _tokens_with_text(text: str, spans: Sequence[TokenSpan]) -> list[tuple[int, int, int]]:
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
        if character == " ":
            positions.append(start)
        else:
            positions.append(text.index(character, start))
            start = positions[-1] + 1
    return positions
