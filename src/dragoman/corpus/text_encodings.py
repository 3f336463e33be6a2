"""Text in other encodings than UTF-8: conversion while reading, and recognition of the likely encoding."""

import codecs
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from dragoman.corpus.compression import read_blocks
from dragoman.errors import CorpusError
from dragoman.text_lines import split_lines

CHECKED_BLOCKS = 16
"""Blocks of a file in which its encoding is looked for: 4 MiB."""
MIN_LETTERS = 0.9
"""Share of non-ASCII characters that must be letters or punctuation for an encoding to be likely."""
_PUNCTUATION = frozenset("‘’‚“”„–—…•«»‹›°§€£¡¿·©®™№、。，！？「」")
_LANGUAGES_OF_ENCODINGS = {
    "cp1250": "cs sk pl hu sl hr bs ro sq",
    "cp1251": "ru uk bg be mk sr",
    "cp1253": "el",
    "cp1254": "tr az",
    "cp1255": "he",
    "cp1256": "ar fa ur",
    "cp1257": "lt lv et",
    "cp1258": "vi",
    "shift_jis": "ja",
    "gb18030": "zh",
    "cp949": "ko",
}
_ENCODING_OF_LANGUAGE = {code: name for name, codes in _LANGUAGES_OF_ENCODINGS.items() for code in codes.split()}
# Not encodings of text, or decoders that take quadratic time.
_REFUSED = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"})


def check_encoding(name: str) -> str:
    """The name of a known text encoding; another one is a user's error."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # Codecs from bytes to bytes, such as base64, refuse text.
    except (LookupError, ValueError):
        found = None
    if found is None or found.name in _REFUSED:
        raise CorpusError(f"the encoding {name!r} is unknown: use for example latin-1, cp1252, utf-16 or shift_jis")
    return found.name


def read_text_blocks(path: Path, encoding: str | None) -> Iterator[bytes]:
    """The blocks of a text file as UTF-8. Without an encoding they pass unchanged, valid or not.

    What the encoding does not allow becomes U+FFFD, which cleaning counts as `mojibake`.
    """
    if encoding is None:
        yield from read_blocks(path)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in read_blocks(path):
        yield _encode(decoder.decode(block))
    yield _encode(decoder.decode(b"", final=True))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def likely_encoding(path: Path, language: str) -> str | None:
    """The encoding in which the lines of a file that are not UTF-8 are readable text of a language, if there is one."""
    head = b"".join(islice(read_blocks(path), CHECKED_BLOCKS))
    if utf16 := utf16_without_mark(head):
        return utf16
    invalid = [line for line in split_lines(head) if not _is_utf8(line)][:1000]
    encoding = _ENCODING_OF_LANGUAGE.get(language.split("-", maxsplit=1)[0].lower(), "cp1252")
    # The last line may be cut off in the middle of a character.
    if not invalid or not all(_is_readable(line, encoding) for line in invalid[:-1] or invalid):
        return None
    # Latin-1 is the part of cp1252 without the bytes from 0x80 to 0x9f.
    only_latin_1 = encoding == "cp1252" and not any(0x80 <= byte < 0xA0 for line in invalid for byte in line)
    return "latin-1" if only_latin_1 else encoding


def utf16_without_mark(head: bytes) -> str | None:
    """UTF-16 without a byte-order mark: every other byte of ASCII text is zero."""
    if head.count(0) * 4 < len(head) or not head:
        return None
    return "utf-16-le" if head[1::2].count(0) > head[::2].count(0) else "utf-16-be"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_readable(line: bytes, encoding: str) -> bool:
    try:
        special = [character for character in line.decode(encoding) if not character.isascii()]
    except UnicodeDecodeError:
        return False
    good = sum(character.isalpha() or character in _PUNCTUATION for character in special)
    return good >= MIN_LETTERS * len(special)
