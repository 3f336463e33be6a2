"""HTML pages and fragments: their texts with inline markup, and the same pages with translated texts.

Everything that is not translated stays as it is, byte for byte: attributes, comments, scripts, code, elements with
`translate="no"`, and broken markup. Block elements separate texts; inline elements become tags of texts.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate, chain

from dragoman.character_references import decode_references
from dragoman.documents.html_tokens import HtmlToken, TokenKind, read_tokens
from dragoman.documents.marked_text import InlineTag, MarkedText

_BLOCK_ELEMENT_LIST = """
    address article aside base blockquote body caption center col colgroup dd details dialog dir div dl dt fieldset
    figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main menu
    meta nav noscript ol optgroup option p pre search section select summary table tbody td template tfoot th thead
    title tr ul xmp
"""
BLOCK_ELEMENTS = frozenset(_BLOCK_ELEMENT_LIST.split())
_UNTRANSLATED_ELEMENT_LIST = """
    address applet audio canvas code embed iframe kbd math object pre samp script style svg template textarea time tt
    var video xmp
"""
UNTRANSLATED_ELEMENTS = frozenset(_UNTRANSLATED_ELEMENT_LIST.split())
MAX_LINK_TOKENS = 20
"""Tokens of a mention or an address: some servers write each part of it in an element of its own."""
_UNTRANSLATED_ATTRIBUTE = re.compile(
    r"""\s(?:translate\s*=\s*["']?no["'\s/>]|class\s*=\s*(?:"[^"]*|'[^']*|)\bnotranslate\b)""", re.IGNORECASE
)
_UNTRANSLATED_LINK = re.compile(r"\s*(?:[@#][\w@.-]+|(?:https?://|www\.)\S+)\s*")
"""Text of a link that is no text of a language: a mention, a hashtag, an address."""
_SPACE_CHARACTERS = " \t\n\r\f"
_SPACES = re.compile(f"[{_SPACE_CHARACTERS}]+")
_NO_BREAK_SPACE = "\xa0"


@dataclass(frozen=True)
class _Markup:
    """The source of an inline tag, or of one without its counterpart."""

    opening: str
    closing: str = ""
    parent: int | None = None
    """Key of the tag around it."""
    is_unpaired: bool = False
    replaces_space: bool = False
    """True for markup that stands for the space in the text."""
    needs_spaces: tuple[bool, bool] = (False, False)
    """Spaces before and after a single tag in the source: an image or a formula shows them both."""


@dataclass
class _Text:
    """A text with inline markup, and the source around it."""

    before: str
    marked: MarkedText
    markup: list[_Markup]
    """By key."""
    after: str

    def render(self, translation: MarkedText) -> str:
        return self.before + _Renderer(translation, self.markup).render() + self.after


class HtmlDocument:
    """A page or fragment, in texts."""

    def __init__(self, page: str) -> None:
        self._parts: list[str | _Text] = []
        run: list[HtmlToken] = []
        for token in _join_untranslated(read_tokens(page)):
            if token.name in BLOCK_ELEMENTS or token.kind is TokenKind.RAW:
                self._add_run(run)
                run = []
                self._parts.append(token.source)
            else:
                run.append(token)
        self._add_run(run)

    def _add_run(self, run: list[HtmlToken]) -> None:
        builder = _TextBuilder(run)
        if builder.has_letters:
            self._parts.append(builder.build())
        else:
            self._parts += (token.source for token in run)

    @property
    def segments(self) -> list[MarkedText]:
        return [part.marked for part in self._parts if isinstance(part, _Text)]

    def render(self, translations: Sequence[MarkedText]) -> str:
        """The page with its texts replaced."""
        remaining = iter(translations)
        return "".join(part if isinstance(part, str) else part.render(next(remaining)) for part in self._parts)


def visible_text(page: str) -> str:
    """The text of a page without markup, one line per segment."""
    return "\n".join(segment.text for segment in HtmlDocument(page).segments)


def _has_text(token: HtmlToken) -> bool:
    return token.kind is TokenKind.TEXT and bool(decode_references(token.source).strip())


def _join_untranslated(tokens: Iterator[HtmlToken]) -> Iterator[HtmlToken]:
    """The tokens, with each element that is not translated as a single one."""
    for token in tokens:
        if token.kind is not TokenKind.OPEN or not (
            token.name in UNTRANSLATED_ELEMENTS or _UNTRANSLATED_ATTRIBUTE.search(token.source)
        ):
            yield token
            continue
        sources, depth = [token.source], 1
        while depth and (inner := next(tokens, None)) is not None:
            sources.append(inner.source)
            if inner.name == token.name:
                depth += {TokenKind.OPEN: 1, TokenKind.CLOSE: -1}.get(inner.kind, 0)
        yield HtmlToken(TokenKind.SINGLE, "".join(sources), token.name)


def _pair_tags(tokens: Sequence[HtmlToken]) -> dict[int, int]:
    """Indexes of opening tags and those of the tags that close them, and the reverse. Crossed tags have no pair."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    open_names: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.kind is TokenKind.OPEN:
            opened.append(index)
            open_names[token.name] = open_names.get(token.name, 0) + 1
        elif token.kind is TokenKind.CLOSE and open_names.get(token.name):
            while True:
                start = opened.pop()
                open_names[tokens[start].name] -= 1
                if tokens[start].name == token.name:
                    break
            pairs[start], pairs[index] = index, start
    return pairs


class _TextBuilder:
    """Makes a text of the tokens between two block elements."""

    def __init__(self, tokens: Sequence[HtmlToken]) -> None:
        self._tokens = tokens
        self._pairs = _pair_tags(tokens)
        untranslated = self._find_untranslated_links()
        texts = [
            decode_references(token.source) if token.kind is TokenKind.TEXT and index not in untranslated else ""
            for index, token in enumerate(tokens)
        ]
        self.has_letters = any(map(str.isalpha, chain.from_iterable(texts)))
        self._text_counts = [0, *accumulate(bool(text.strip()) for text in texts)]
        """Number of tokens with text to translate before each token."""
        self._characters: list[str] = []
        self._tags: list[tuple[int, int]] = []
        """Start and end by key."""
        self._markup: list[_Markup] = []
        self._open: list[int] = []
        """Keys of open tags."""

    def _find_untranslated_links(self) -> set[int]:
        """Indexes of the tokens in links whose text is a mention, a hashtag or an address."""
        found: set[int] = set()
        for start, end in self._pairs.items():
            if self._tokens[start].name == "a" and 0 < end - start <= MAX_LINK_TOKENS:
                texts = (token.source for token in self._tokens[start:end] if token.kind is TokenKind.TEXT)
                if _UNTRANSLATED_LINK.fullmatch(decode_references("".join(texts))):
                    found.update(range(start, end))
        return found

    def build(self) -> _Text:
        first, last = self._trim()
        index = first
        while index <= last:
            index = self._add(index)
        stripped = "".join(self._characters).rstrip(" ")
        tags = (
            InlineTag(min(start, len(stripped)), min(end, len(stripped)), key)
            for key, (start, end) in enumerate(self._tags)
        )
        before, after = (
            "".join(token.source for token in part) for part in (self._tokens[:first], self._tokens[last + 1 :])
        )
        leading, trailing = self._outer_spaces(first, last)
        return _Text(before + leading, MarkedText(stripped, tuple(tags)), self._markup, trailing + after)

    def _trim(self) -> tuple[int, int]:
        """The first and last token within all markup that is around the whole text, or beside it."""
        first, last = 0, len(self._tokens) - 1
        while True:
            if self._is_beside_text(first):
                first += 1
            elif self._is_beside_text(last):
                last -= 1
            elif self._is_empty(first, self._pairs.get(first, first)):
                first = self._pairs[first] + 1
            elif self._is_empty(self._pairs.get(last, last), last):
                last = self._pairs[last] - 1
            elif self._pairs.get(first) == last:
                first, last = first + 1, last - 1
            else:
                return first, last

    def _is_beside_text(self, index: int) -> bool:
        token = self._tokens[index]
        return not _has_text(token) if token.kind is TokenKind.TEXT else index not in self._pairs

    def _outer_spaces(self, first: int, last: int) -> tuple[str, str]:
        """Spaces at the start and end of the text: as they were, or one if they were within a tag."""
        texts = [token for token in self._tokens[first : last + 1] if token.kind is TokenKind.TEXT]
        source, final = texts[0].source, texts[-1].source
        leading = source[: len(source) - len(source.lstrip(_SPACE_CHARACTERS))]
        trailing = final[len(final.rstrip(_SPACE_CHARACTERS)) :]
        return (
            leading if texts[0] is self._tokens[first] else leading and " ",
            trailing if texts[-1] is self._tokens[last] else trailing and " ",
        )

    def _add(self, index: int) -> int:
        """Add a token; returns the index of the next."""
        token = self._tokens[index]
        if token.kind is TokenKind.TEXT:
            self._add_text(token.source)
        elif index not in self._pairs:
            self._add_single(index, index)
        elif self._pairs[index] < index:
            key = self._open.pop()
            self._tags[key] = self._tags[key][0], len(self._characters)
        elif self._is_empty(index, self._pairs[index]):
            self._add_single(index, self._pairs[index])
            return self._pairs[index] + 1
        else:
            self._open_tag(_Markup(token.source, self._tokens[self._pairs[index]].source, self._parent))
            self._open.append(len(self._tags) - 1)
        return index + 1

    @property
    def _parent(self) -> int | None:
        return self._open[-1] if self._open else None

    def _is_empty(self, start: int, end: int) -> bool:
        """True for a pair of tags without text to translate between them."""
        return start < end and self._text_counts[start] == self._text_counts[end]

    def _open_tag(self, markup: _Markup, length: int = 0) -> None:
        self._tags.append((len(self._characters) - length, len(self._characters)))
        self._markup.append(markup)

    def _add_text(self, source: str) -> None:
        for part in re.split(f"(&nbsp;|{_NO_BREAK_SPACE})", source):
            if part in ("&nbsp;", _NO_BREAK_SPACE):
                self._add_space()
                self._open_tag(_Markup(part, parent=self._parent, replaces_space=True), 1)
            else:
                self._add_collapsed(_SPACES.sub(" ", decode_references(part)))

    def _add_collapsed(self, text: str) -> None:
        after_space = not self._characters or self._characters[-1] in " \n"
        self._characters += text.removeprefix(" ") if after_space else text

    def _add_space(self) -> None:
        if self._characters[-1:] != [" "]:
            self._characters.append(" ")

    def _add_single(self, start: int, end: int) -> None:
        """Add markup without text, from one token to another."""
        token = self._tokens[start]
        source = "".join(inner.source for inner in self._tokens[start : end + 1])
        if token.name == "br":
            self._characters.append("\n")
            self._open_tag(_Markup(source, parent=self._parent, replaces_space=True), 1)
            return
        following = self._tokens[end + 1].source if end + 1 < len(self._tokens) else ""
        spaces = self._characters[-1:] == [" "], following[:1].isspace()
        self._open_tag(
            _Markup(
                source,
                parent=self._parent,
                is_unpaired=token.kind in (TokenKind.OPEN, TokenKind.CLOSE) and start == end,
                needs_spaces=spaces if all(spaces) and token.name else (False, False),
            )
        )


class _Renderer:
    """Writes a text with its markup as HTML."""

    def __init__(self, translation: MarkedText, markup: Sequence[_Markup]) -> None:
        self._text, self._markup = translation.text, markup
        self._out: list[str] = []
        self._position = 0
        self._open: list[InlineTag] = []
        self._tags = _in_source_order(translation.tags, markup)

    def render(self) -> str:
        for tag in self._tags:
            parent = self._markup[tag.key].parent
            while self._open and self._open[-1].end <= tag.start and self._open[-1].key != parent:
                self._close()
            self._write_up_to(tag.start)
            self._write_opening(tag)
        while self._open:
            self._close()
        self._write_up_to(len(self._text))
        return "".join(self._out)

    def _write_opening(self, tag: InlineTag) -> None:
        markup = self._markup[tag.key]
        if markup.closing:
            self._out.append(markup.opening)
            self._open.append(tag)
            return
        before, after = markup.needs_spaces
        preceding, following = self._text[max(tag.start - 1, 0) : tag.start], self._text[tag.start : tag.start + 1]
        missing_before = before and preceding not in ("", " ")
        missing_after = after and following.isalnum()
        self._out.append(" " * missing_before + markup.opening + " " * missing_after)
        if markup.replaces_space and following in (" ", "\n"):
            self._position = max(self._position, tag.start + len(following))

    def _close(self) -> None:
        tag = self._open.pop()
        self._write_up_to(tag.end)
        self._out.append(self._markup[tag.key].closing)

    def _write_up_to(self, end: int) -> None:
        if end > self._position:
            self._out.append(html.escape(self._text[self._position : end], quote=False).replace("\xa0", "&nbsp;"))
            self._position = end


def _in_source_order(tags: Sequence[InlineTag], markup: Sequence[_Markup]) -> list[InlineTag]:
    """The tags, those without counterpart in their order in the source: else an end could come before its start."""
    unpaired = sorted((tag for tag in tags if markup[tag.key].is_unpaired), key=lambda tag: tag.key)
    starts = accumulate((tag.start for tag in unpaired), max)
    moved = [InlineTag(start, start, tag.key) for start, tag in zip(starts, unpaired, strict=True)]
    paired = [tag for tag in tags if not markup[tag.key].is_unpaired]
    return list(merge(paired, moved, key=lambda tag: tag.start))
