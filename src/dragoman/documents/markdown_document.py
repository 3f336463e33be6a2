"""Markdown (CommonMark, with tables, strikethrough, task lists and footnotes).

markdown-it-py finds blocks and inline elements. It states the lines of a block, but not the places of its elements, so
these are followed through the source. Only text is changed; code, addresses, HTML, front matter and the rest of each
line are kept.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from dragoman.documents.document import Document, decode_text, has_words
from dragoman.documents.inline_tree import InlineBuilder, InlineText, write_inline
from dragoman.documents.line_wrapping import wrap_evenly
from dragoman.documents.markdown_parser import FOOTNOTE, make_parser
from dragoman.documents.marked_text import MarkedText
from dragoman.text_lines import split_lines

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_FRONT_MATTER = re.compile(r"(?:---|\+\+\+)[ \t]*")
_SOFT_BREAK = re.compile(r" *\n[ \t]*")
_HARD_BREAK = re.compile(r"(?: *|\\)\n[ \t]*")
_HTML_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
_VOID_TAGS = frozenset({"br", "img", "hr", "wbr", "input"})
_REFERENCE = re.compile(r"\[(?:[^\[\]\\]|\\.)*+\]", re.DOTALL)
_CELLS = frozenset({"th_open", "td_open"})
_CELL_END = re.compile(r"[ \t]*(?:\||$)")
_SPECIAL = frozenset("\\`*_[]<~&")
_ENTITY = re.compile(r"&(?=#?\w+;)")
# What would begin another block at the start of a line: a list, heading, quotation, underline, fence or rule.
_BLOCK_START = re.compile(
    r"(\d{1,9})(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|>|=+\s*$|-+\s*$|~~~|```|([-*_])(?:[ \t]*\2){2,}[ \t]*$)"
)
_FENCE = re.compile(r"~{3,}|`{3,}")
_BREAK_IN_TAG = re.compile(r"(?<![ \t])[ \t]*\n[ \t]*")


class _UntraceableError(Exception):
    """The source of an inline element was not found. Its block stays as it is."""


@dataclass(frozen=True)
class _Stretch:
    """Inline content between hard line breaks, on one or more lines."""

    first_line: int
    """Relative to the block."""
    lines: int
    max_lines: int
    """Lines that its text may be broken into; fewer than `lines` if tags of its own break lines."""
    inline: InlineText
    tags: dict[int, tuple[str, str]]
    ending: str
    """The backslash of a hard line break behind it, if there is one."""
    special: frozenset[str]
    """Characters that need a backslash: those that had one, and those with a meaning that the text did not contain."""

    def render(self, translation: MarkedText) -> str:
        wrapped = MarkedText(wrap_evenly(translation.text, self.max_lines), translation.tags)
        return write_inline(self.inline.nest(wrapped), self.tags, self._escape) + self.ending

    def _escape(self, text: str) -> str:
        escaped = "".join(
            f"\\{character}" if character in self.special and character != "&" else character for character in text
        )
        return _ENTITY.sub(r"\\&", escaped) if "&" in self.special else escaped


@dataclass(frozen=True)
class _Description:
    """Text that describes an image."""

    stretch: _Stretch
    tags: dict[int, tuple[str, str]]
    """Tags of the text around the image; the image is one of them."""
    key: int
    address: str

    def write(self, translation: MarkedText) -> None:
        self.tags[self.key] = f"![{self.stretch.render(translation)}{self.address}", ""


@dataclass(frozen=True)
class _Block:
    """Inline content in the lines of the file."""

    kind: str
    """Type of the token that opens the block."""
    spans: list[tuple[int, int]]
    """Where the content of each line begins and ends in the file."""
    stretches: list[_Stretch]
    descriptions: list[_Description]

    def changes(self, translations: Mapping[int, MarkedText], source: str) -> Iterator[tuple[int, int, str]]:
        """Begin, end and new text of what changes. Translations are found by the identity of their stretches."""
        with_new_images = []
        for description in self.descriptions:
            original = description.stretch.inline.marked
            if (translation := translations.get(id(description.stretch), original)) != original:
                description.write(translation)
                with_new_images.append(description.tags)
        for stretch in self.stretches:
            translation = translations.get(id(stretch), stretch.inline.marked)
            if translation != stretch.inline.marked or any(tags is stretch.tags for tags in with_new_images):
                spans = self.spans[stretch.first_line : stretch.first_line + stretch.lines]
                yield spans[0][0], spans[-1][1], self._join(split_lines(stretch.render(translation)), spans, source)

    def _join(self, lines: list[str], spans: list[tuple[int, int]], source: str) -> str:
        """Lines with what stood between the lines of the source: line ends, indents and marks of quotations."""
        if self.kind in _CELLS:
            return " ".join(lines).replace("|", "\\|")
        if self.kind == "paragraph_open":
            lines = [_escape_block_start(line.lstrip()) for line in lines]
        lines = [line for line in lines if line.strip()]  # An empty line would end the paragraph.
        margins = [source[before[1] : after[0]] for before, after in pairwise(spans)]
        return "".join(line + margin for line, margin in zip_longest(lines, margins[: len(lines) - 1], fillvalue=""))


def parse_markdown(content: bytes) -> Document:
    """Translate paragraphs, headings, lists, quotations, tables, and descriptions of images."""
    decoded = decode_text(content)
    blocks = list(_BlockReader(decoded.text).read())
    stretches = [
        stretch
        for block in blocks
        for stretch in (*block.stretches, *(description.stretch for description in block.descriptions))
        if has_words(stretch.inline.marked.text)
    ]

    def render(translations: Sequence[MarkedText]) -> bytes:
        by_identity = {id(stretch): new for stretch, new in zip(stretches, translations, strict=True)}
        parts = []
        position = 0
        for block in blocks:
            for begin, end, text in block.changes(by_identity, decoded.text):
                parts += [decoded.text[position:begin], text]
                position = end
        return decoded.encode("".join(parts) + decoded.text[position:])

    return Document([stretch.inline.marked for stretch in stretches], render)


class _BlockReader:
    """Finds the blocks with inline content, and where they stand in the file."""

    def __init__(self, source: str) -> None:
        lines = list(_LINE.finditer(source))
        self._lines = [line[1].replace("\0", "\ufffd") for line in lines]
        self._starts = [line.start() for line in lines]

    def read(self) -> Iterator[_Block]:
        first = _front_matter_lines(self._lines)
        markdown = make_parser()
        environment: dict[str, Any] = {}
        kind = ""
        row, cell_end = -1, 0
        for token in markdown.parse("\n".join(self._lines[first:]), environment):
            if token.type == "inline" and token.map and token.content:
                line = token.map[0] + first
                try:
                    if kind in _CELLS:
                        begin, cell_end = self._find_cell(line, token.content, cell_end if line == row else 0)
                        row, spans = line, [(self._starts[line] + begin, self._starts[line] + cell_end)]
                    else:
                        spans = list(self._find_lines(split_lines(token.content), line))
                    reader = _InlineReader(token.content, markdown, environment.get("references", {}))
                    reader.read(token.children or [])
                    yield _Block(kind, spans, reader.finish(), reader.descriptions)
                except _UntraceableError:
                    pass
            kind = token.type

    def _find_lines(self, content: Sequence[str], first: int) -> Iterator[tuple[int, int]]:
        """Places of lines, without indents and marks of quotations and lists, spaces and marks of headings."""
        for place, text in enumerate(content, first):
            line, start = self._lines[place], self._starts[place]
            body = text.strip()
            bare = line.rstrip()
            ends = (len(bare), len(bare.rstrip("#").rstrip()))  # A heading may end in marks.
            end = next((end for end in ends if line[:end].endswith(body)), None)
            if end is None:
                raise _UntraceableError
            yield start + end - len(body), start + end

    def _find_cell(self, line: int, content: str, start: int) -> tuple[int, int]:
        """Begin and end of a table cell in its line."""
        text, raw = self._lines[line], content.replace("|", "\\|")
        begin = text.find(raw, start)
        while begin >= 0:
            end = begin + len(raw)
            if text[start:begin].rstrip()[-1:] in ("", "|", ">") and _CELL_END.match(text, end):
                return begin, end
            begin = text.find(raw, begin + 1)
        raise _UntraceableError


def _front_matter_lines(lines: Sequence[str]) -> int:
    """Lines of YAML or TOML at the beginning; 0 if there are none."""
    if not lines or not _FRONT_MATTER.fullmatch(lines[0]):
        return 0
    mark = lines[0].strip()
    return next((place + 1 for place, line in enumerate(lines) if place and line.rstrip() in (mark, "...")), 0)


class _InlineReader:
    """Follows inline tokens through their source."""

    def __init__(self, source: str, markdown: MarkdownIt, references: Mapping[str, Any]) -> None:
        self._source = source
        self._markdown = markdown
        self._references = references
        self.descriptions: list[_Description] = []
        self._position = 0
        self._label_starts: list[int] = []
        self._stretches: list[_Stretch] = []
        self._begin_stretch(0)

    def _begin_stretch(self, line: int) -> None:
        self._builder = InlineBuilder()
        self._raw_characters: set[str] = set()
        self._escaped_characters: set[str] = set()
        self._first_line = self._line = line
        self._breaks_in_tags = 0

    def finish(self) -> list[_Stretch]:
        if self._position != len(self._source):
            raise _UntraceableError
        self._end_stretch("")
        return self._stretches

    def _end_stretch(self, ending: str) -> None:
        special = _SPECIAL - self._raw_characters | self._escaped_characters
        inline = self._builder.flatten()
        lines = self._line - self._first_line + 1
        self._stretches.append(
            _Stretch(self._first_line, lines, lines - self._breaks_in_tags, inline, self._builder.tags, ending, special)
        )
        self._begin_stretch(self._line + 1)

    def read(self, tokens: Sequence[Token]) -> None:
        kinds: dict[str, Callable[[Token], None]] = {
            "text": self._read_text, "text_special": self._read_escaped, "softbreak": self._read_soft_break,
            "hardbreak": self._read_hard_break, "code_inline": self._read_code, "html_inline": self._read_html,
            "image": self._read_image, "link_open": self._open_link, "link_close": self._close_link,
            FOOTNOTE: self._read_footnote,
        }  # fmt: skip
        is_autolink = False
        for token in tokens:
            if token.markup == "autolink":
                is_autolink = token.type == "link_open"
                if is_autolink:
                    end = self._source.find(">", self._position) + 1
                    self._builder.add_single(self._take(self._source[self._position : end or None]), is_visible=True)
            elif is_autolink:
                continue
            elif token.type in kinds:
                kinds[token.type](token)
            elif token.nesting > 0:
                self._builder.open(token.tag, self._take(token.markup))
            elif token.nesting < 0:
                self._builder.close(token.tag, self._take(token.markup))
            else:
                raise _UntraceableError

    def _take(self, raw: str) -> str:
        """Move on by text that must be here."""
        if not self._source.startswith(raw, self._position):
            raise _UntraceableError
        self._position += len(raw)
        return raw

    def _take_match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._source, self._position)
        if match is None:
            raise _UntraceableError
        return self._take(match.group())

    def _take_tag(self, raw: str) -> str:
        """Move on by a tag, and return it on one line: spaces and line breaks within tags mean the same."""
        self._line += raw.count("\n")
        return _BREAK_IN_TAG.sub(" ", self._take(raw))

    def _read_text(self, token: Token) -> None:
        self._builder.add_text(self._take(token.content))
        self._raw_characters.update(token.content)

    def _read_escaped(self, token: Token) -> None:
        self._take(token.markup)
        self._builder.add_text(token.content.replace("\n", " "))
        if len(token.content) == 1:
            self._escaped_characters.update(token.content)
        else:  # A backslash that escapes nothing.
            self._raw_characters.update(token.content)

    def _read_soft_break(self, _: Token) -> None:
        self._take_match(_SOFT_BREAK)
        self._builder.add_text(" ")
        self._line += 1

    def _read_hard_break(self, _: Token) -> None:
        mark = self._take_match(_HARD_BREAK).partition("\n")[0]
        if not self._builder.is_open:
            self._end_stretch(mark.strip())
            return
        self._builder.add_single(f"{mark}\n")  # Within emphasis or a link: they cannot be cut.
        self._builder.add_text(" ")
        self._line += 1
        self._breaks_in_tags += 1

    def _read_code(self, token: Token) -> None:
        closing = re.compile(rf"(?<!`){token.markup}(?!`)").search(self._source, self._position + len(token.markup))
        if closing is None:
            raise _UntraceableError
        self._builder.add_single(self._take_tag(self._source[self._position : closing.end()]), is_visible=True)

    def _read_html(self, token: Token) -> None:
        tag = _HTML_TAG.match(token.content)
        raw = self._take_tag(token.content)
        if tag is None or tag[2].lower() in _VOID_TAGS or raw.endswith("/>"):
            self._builder.add_single(raw)
        elif tag[1]:
            self._builder.close(f"<{tag[2].lower()}>", raw)
        else:
            self._builder.open(f"<{tag[2].lower()}>", raw)

    def _read_footnote(self, token: Token) -> None:
        self._builder.add_single(self._take(token.markup))

    def _read_image(self, token: Token) -> None:
        start = self._position
        self._position += 2 + len(token.content)
        label_end, self._position = self._position, start
        address = self._source[label_end : self._link_end(label_end)]
        key = self._builder.add_single(self._take_tag(f"![{token.content}{address}"), is_visible=True)
        ending = _full_reference(_BREAK_IN_TAG.sub(" ", address), token.content)
        inner = _InlineReader(token.content, self._markdown, self._references)
        inner.read(token.children or [])
        stretches = inner.finish()
        if len(stretches) == stretches[0].lines == 1:
            self.descriptions.append(_Description(stretches[0], self._builder.tags, key, ending))

    def _open_link(self, _: Token) -> None:
        self._builder.open("a", self._take("["))
        self._label_starts.append(self._position)

    def _close_link(self, _: Token) -> None:
        label = self._source[self._label_starts.pop() : self._position]
        raw = self._take_tag(self._source[self._position : self._link_end(self._position)])
        self._builder.close("a", _full_reference(raw, _BREAK_IN_TAG.sub(" ", label)))

    def _link_end(self, label_end: int) -> int:
        """End of a link: behind its address, its reference or its label."""
        place = label_end + 1
        if self._source[label_end:place] != "]":
            raise _UntraceableError
        if self._source.startswith("(", place) and (end := self._address_end(place + 1)):
            return end
        reference = _REFERENCE.match(self._source, place)
        if reference and (reference.group() == "[]" or normalizeReference(reference.group()[1:-1]) in self._references):
            return reference.end()
        return place

    def _address_end(self, place: int) -> int:
        source, helpers = self._source, self._markdown.helpers
        place = self._skip_spaces(place)
        destination = helpers.parseLinkDestination(source, place, len(source))
        place = self._skip_spaces(destination.pos if destination.ok else place)
        title = helpers.parseLinkTitle(source, place, len(source))
        if title.ok:
            place = self._skip_spaces(title.pos)
        return place + 1 if source.startswith(")", place) else 0

    def _skip_spaces(self, place: int) -> int:
        while place < len(self._source) and self._source[place] in " \t\n":
            place += 1
        return place


def _escape_block_start(line: str) -> str:
    """The line with backslashes if it would begin another block."""
    start = _BLOCK_START.match(line)
    if start is None:
        return line
    marks = _FENCE.match(line)
    if marks:  # Each of them: the rest would be code.
        return "".join(f"\\{mark}" for mark in marks.group()) + line[marks.end() :]
    return f"{line[: start.end(1)]}\\{line[start.end(1) :]}" if start[1] else f"\\{line}"


def _full_reference(ending: str, label: str) -> str:
    """The end of a link that also names its reference if the label alone did so, because the label changes."""
    return f"][{label}]" if ending in ("]", "][]") else ending
