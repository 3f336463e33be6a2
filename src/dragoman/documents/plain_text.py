"""Plain text: its lines are translated, indents and line breaks stay."""

import re
from collections.abc import Sequence

from dragoman.documents.document import Document, decode_text, has_words
from dragoman.documents.marked_text import MarkedText

_LINE = re.compile(r"[^\r\n]+")


def parse_text(content: bytes) -> Document:
    decoded = decode_text(content)
    lines = [line for line in _LINE.finditer(decoded.text) if has_words(line.group())]

    def render(translations: Sequence[MarkedText]) -> bytes:
        parts = []
        position = 0
        for line, translation in zip(lines, translations, strict=True):
            parts += [decoded.text[position : line.start()], translation.text]
            position = line.end()
        return decoded.encode("".join(parts) + decoded.text[position:])

    return Document([MarkedText(line.group()) for line in lines], render)
