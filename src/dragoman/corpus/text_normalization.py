"""Normalization of text: whitespace, control characters, combining marks."""

import re
import unicodedata
from functools import cache

# C0 and C1 controls, zero-width spaces, directional marks, the byte-order mark. Joiners (U+200C, U+200D) are kept:
# several languages need them for spelling.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_FIRST_COMBINING_MARK = "\u0300"
_MAX_COMBINING_MARKS = 30
_COMBINING_GRAPHEME_JOINER = "\u034f"


def remove_control_characters(text: str) -> str:
    return _CONTROL.sub("", text)


def has_plain_spaces(text: str) -> bool:
    """True if there is no whitespace to collapse and no control character. `isprintable` is a fast table lookup."""
    return text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "


def collapse_whitespace(text: str) -> str:
    return text if has_plain_spaces(text) else " ".join(text.split())


def is_word(text: str) -> bool:
    """True for printable characters without a space, which normalization leaves as they are."""
    is_printed = text.isprintable() and text != "" and " " not in text
    return is_printed and text == unicodedata.normalize("NFC", limit_combining_marks(text))


def limit_combining_marks(text: str) -> str:
    """Stream-safe text (Unicode Annex 15): a joiner after each 30 combining marks on one letter.

    No language needs as many. Normalization sorts the marks of a letter, in a time that is quadratic in their number.
    """
    if not text or max(text) < _FIRST_COMBINING_MARK:
        return text
    return _combining_mark_run().sub(rf"\g<0>{_COMBINING_GRAPHEME_JOINER}", text)


@cache
def _combining_mark_run() -> re.Pattern[str]:
    marks = "".join(
        mark for mark in map(chr, range(ord(_FIRST_COMBINING_MARK), 0x20000)) if unicodedata.combining(mark)
    )
    return re.compile(f"[{marks}]{{{_MAX_COMBINING_MARKS}}}(?=[{marks}])")
