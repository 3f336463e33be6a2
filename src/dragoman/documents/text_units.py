"""Parts of a text that no tag may split: words, and elsewhere characters as a reader sees them."""

import unicodedata
from collections.abc import Iterator
from itertools import groupby

Span = tuple[int, int]
"""Start and end in a text."""

_ZERO_WIDTH_JOINER = "\u200d"
_WORD_JOINERS = "'’\u200c\u00ad"
"""Between two letters they belong to the word."""
# Scripts without spaces between words: Thai and Lao, Burmese, Khmer, kana, Chinese characters.
_SPACELESS = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)  # fmt: skip


def find_graphemes(text: str, start: int = 0, end: int | None = None) -> list[Span]:
    """Characters as a reader sees them: letters with their marks, emoji sequences, flags."""
    stop = len(text) if end is None else end
    bounds = [start] if start < stop else []
    flags = 0
    for position in range(start + 1, stop):
        previous, character = text[position - 1], text[position]
        flags = flags + 1 if _is_regional_indicator(previous) else 0
        completes_flag = flags % 2 == 1 and _is_regional_indicator(character)
        if not (_extends(character) or previous == _ZERO_WIDTH_JOINER or completes_flag):
            bounds.append(position)
    return list(zip(bounds, [*bounds[1:], stop], strict=True)) if bounds else []


def find_units(text: str) -> list[Span]:
    """Words, numbers, and other visible characters one by one. Whitespace belongs to none, but for line breaks."""
    graphemes = find_graphemes(text)
    units: list[Span] = []
    for is_word, group in groupby(_mark_word_parts(text, graphemes), key=lambda marked: marked[1]):
        spans = [span for span, _ in group]
        if is_word:
            units.append((spans[0][0], spans[-1][1]))
        else:
            units += (span for span in spans if text[span[0]] == "\n" or text[span[0] : span[1]].strip())
    return units


def _mark_word_parts(text: str, graphemes: list[Span]) -> Iterator[tuple[Span, bool]]:
    """Each grapheme, and true if it belongs to a word with its neighbours."""
    in_word = [_is_word_character(text[start]) for start, _ in graphemes]
    for index, span in enumerate(graphemes):
        joins = text[span[0]] in _WORD_JOINERS and 0 < index < len(graphemes) - 1
        yield span, in_word[index] or (joins and in_word[index - 1] and in_word[index + 1])


def _is_word_character(character: str) -> bool:
    code = ord(character)
    return (character.isalnum() or character == "_") and not any(first <= code <= last for first, last in _SPACELESS)


def _extends(character: str) -> bool:
    """True for a character that changes the look of the one before it."""
    code = ord(character)
    return code >= 0x300 and (
        unicodedata.category(character)[0] == "M"
        or character == _ZERO_WIDTH_JOINER
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags of flags
    )


def _is_regional_indicator(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
