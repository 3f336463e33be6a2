"""A document in any format: the texts to translate, and the same document with their translations."""

import codecs
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman.documents.marked_text import MarkedText
from dragoman.errors import DragomanError

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class UnreadableError(DragomanError):
    """The file is not valid in the format of its extension. The message gives the reason and a remedy."""


@dataclass(frozen=True)
class Document:
    """A parsed document."""

    segments: list[MarkedText]
    """Texts to translate: paragraphs, cells, cues, messages."""
    render: Callable[[Sequence[MarkedText]], bytes]
    """The document with a translation of each segment; everything else is unchanged. Called at most once."""


@dataclass(frozen=True)
class DecodedText:
    """The content of a text file, with the encoding that it came in."""

    text: str
    encoding: str = "utf-8"
    byte_order_mark: bytes = b""

    def encode(self, text: str) -> bytes:
        """Text in the encoding of the file. Unpaired surrogates, which models cannot generate, become `?`."""
        return self.byte_order_mark + text.encode(self.encoding, "replace")


def decode_text(content: bytes) -> DecodedText:
    """Decode UTF-8, or UTF-16 with a byte order mark."""
    mark = next((mark for mark in _BYTE_ORDER_MARKS if content.startswith(mark)), b"")
    encoding = _BYTE_ORDER_MARKS.get(mark, "utf-8")
    try:
        return DecodedText(content[len(mark) :].decode(encoding), encoding, mark)
    except UnicodeDecodeError as error:
        name, place = encoding[:6].rstrip("-").upper(), len(mark) + error.start
        raise UnreadableError(f"The file is not {name} (byte {place}): save it as UTF-8.") from None


def has_words(text: str) -> bool:
    """True if the text has letters: numbers and punctuation need no translation."""
    return any(map(str.isalpha, text))
