"""The tokens of HTML: tags, comments and text, each with its source. Joined they are the page again.

Follows the HTML standard's tokenizer where browsers agree on broken markup, in linear time. The parsers at hand either
write the page anew, or take quadratic time for markup such as a row of `<a `.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

_VOID_LIST = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
VOID_ELEMENTS = frozenset(_VOID_LIST.split())
RAW_TEXT_ELEMENTS = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "textarea", "title"))
"""Elements that contain no tags."""

_TAG_START = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?:(?P<end>>)|[^\s/>][^\s/>=]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|(?!["'])[^\s>]*)|(?!\s*=)))"""
)


class TokenKind(Enum):
    """Kinds of tokens."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    SINGLE = auto()
    """A void element, or a comment, declaration or processing instruction, whose name is empty."""
    RAW = auto()
    """Text in a script or the like, and what is left of a page that ends within a tag."""


@dataclass(frozen=True)
class HtmlToken:
    """A part of a page."""

    kind: TokenKind
    source: str
    name: str = ""


def read_tokens(page: str) -> Iterator[HtmlToken]:
    """The tokens of a page or fragment."""
    position = text_start = 0
    while (position := page.find("<", position)) >= 0:
        token = _read_markup(page, position)
        if token is None:  # A lone < is text.
            position += 1
            continue
        if text_start < position:
            yield HtmlToken(TokenKind.TEXT, page[text_start:position])
        yield token
        position += len(token.source)
        if token.kind is TokenKind.OPEN and token.name in RAW_TEXT_ELEMENTS:
            end = _find_close(page, token.name, position)
            if position < end:
                kind = TokenKind.TEXT if token.name == "title" else TokenKind.RAW
                yield HtmlToken(kind, page[position:end])
            position = end
        text_start = position
    if text_start < len(page):
        yield HtmlToken(TokenKind.TEXT, page[text_start:])


def _read_markup(page: str, start: int) -> HtmlToken | None:
    """The tag or comment at a `<`, or None if it is text."""
    if page.startswith("<!--", start):
        if page.startswith((">", "->"), start + 4):
            return HtmlToken(TokenKind.SINGLE, page[start : page.index(">", start) + 1])
        return _to_end(page, start, page.find("-->", start + 4), 3)
    if match := _TAG_START.match(page, start):
        return _read_tag(page, start, match)
    if page.startswith(("<!", "<?"), start) or (page.startswith("</", start) and start + 2 < len(page)):
        return _to_end(page, start, page.find(">", start), 1)
    return None


def _to_end(page: str, start: int, end: int, length: int) -> HtmlToken:
    """A comment up to its end mark, or to the end of a page that lacks it."""
    if end < 0:
        return HtmlToken(TokenKind.RAW, page[start:])
    return HtmlToken(TokenKind.SINGLE, page[start : end + length])


def _read_tag(page: str, start: int, match: re.Match[str]) -> HtmlToken:
    position = match.end()
    while attribute := _ATTRIBUTE.match(page, position):
        position = attribute.end()
        if attribute["end"]:
            source, name = page[start:position], match[1].lower()
            if source.startswith("</"):
                return HtmlToken(TokenKind.CLOSE, source, name)
            return HtmlToken(TokenKind.SINGLE if name in VOID_ELEMENTS else TokenKind.OPEN, source, name)
    return HtmlToken(TokenKind.RAW, page[start:])


def _find_close(page: str, name: str, start: int) -> int:
    """Start of the tag that ends an element without tags inside."""
    match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, start)
    return match.start() if match else len(page)
