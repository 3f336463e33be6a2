"""Inline markup as a tree, as files contain it, and as a text with tags, as translators take it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from dragoman.documents.marked_text import InlineTag, MarkedText


@dataclass(frozen=True)
class InlineNode:
    """An inline element with its content, or a single one, whose content is empty."""

    key: int
    content: "list[str | InlineNode]" = field(default_factory=list)


InlineContent: TypeAlias = list[str | InlineNode]


@dataclass(frozen=True)
class InlineText:
    """A text with tags, and what a translation has to keep of them."""

    marked: MarkedText
    parents: Mapping[int, int]
    """For each key the one of the tag around it, if there is one."""
    ordered: frozenset[int] = frozenset()
    """Single tags that stay in their order, such as the begin and the end of a field."""
    visible: frozenset[int] = frozenset()
    """Single tags that stand for something between words, such as code: spaces around them stay."""

    def nest(self, translation: MarkedText) -> InlineContent:
        """A translation as a tree.

        Of a tag at the end of another, positions do not say whether it is inside or behind: it stays where it was.
        """
        writer = _TreeWriter(translation.text)
        for tag in self._in_order(sorted(translation.tags, key=lambda tag: tag.start)):
            while writer.depth and not self._holds(*writer.open_tag, tag):
                writer.close()
            before, behind = self._spaces(tag.key)
            writer.open(tag, before, behind)
        return writer.finish()

    def _in_order(self, tags: Sequence[InlineTag]) -> Iterator[InlineTag]:
        """The tags; those whose order matters swap their places."""
        order = iter([tag.key for tag in self.marked.tags if tag.key in self.ordered])
        for tag in tags:
            yield InlineTag(tag.start, tag.end, next(order)) if tag.key in self.ordered else tag

    @cached_property
    def _places(self) -> dict[int, int]:
        return {tag.key: tag.start for tag in self.marked.tags}

    def _spaces(self, key: int) -> tuple[bool, bool]:
        """Whether a space stood before a single tag, and behind it."""
        if key not in self.visible:
            return False, False
        text, place = self.marked.text, self._places[key]
        return text[max(place - 1, 0) : place].isspace(), text[place : place + 1].isspace()

    def _holds(self, key: int, end: int, tag: InlineTag) -> bool:
        return tag.start < end or (tag.start == end and self._was_inside(tag.key, key))

    def _was_inside(self, key: int, outer: int) -> bool:
        current: int | None = key
        while current is not None and current != outer:
            current = self.parents.get(current)
        return current == outer


class _TreeWriter:
    """Builds a tree from a text and its tags in order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._needs_space = False
        self._root: InlineContent = []
        self._open: list[tuple[InlineNode, int]] = []

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def open_tag(self) -> tuple[int, int]:
        """Key and end of the innermost tag."""
        node, end = self._open[-1]
        return node.key, end

    def open(self, tag: InlineTag, space_before: bool, space_behind: bool) -> None:
        self._add_text(tag.start)
        if space_before and self._position and not self._needs_space and not self._text[self._position - 1].isspace():
            self._content.append(" ")
        node = InlineNode(tag.key)
        self._content.append(node)
        self._open.append((node, tag.end))
        self._needs_space |= space_behind

    def close(self) -> None:
        self._add_text(self._open[-1][1])
        self._open.pop()

    def finish(self) -> InlineContent:
        while self._open:
            self.close()
        self._add_text(len(self._text))
        return self._root

    @property
    def _content(self) -> InlineContent:
        return self._open[-1][0].content if self._open else self._root

    def _add_text(self, end: int) -> None:
        if end > self._position:
            text = self._text[self._position : end]
            # Not before a space or punctuation.
            self._content.append(f" {text}" if self._needs_space and text[0].isalnum() else text)
            self._position, self._needs_space = end, False


def flatten(
    content: Iterable[str | InlineNode], ordered: Iterable[int] = (), visible: Iterable[int] = ()
) -> InlineText:
    """A tree as a text with tags, outer tags first."""
    texts: list[str] = []
    tags: list[InlineTag] = []
    parents: dict[int, int] = {}
    length = 0

    def walk(content: Iterable[str | InlineNode], parent: int | None) -> None:
        nonlocal length
        for item in content:
            if isinstance(item, str):
                texts.append(item)
                length += len(item)
                continue
            if parent is not None:
                parents[item.key] = parent
            place = len(tags)
            start = length
            tags.append(InlineTag(start, start, item.key))
            walk(item.content, item.key)
            tags[place] = InlineTag(start, length, item.key)

    walk(content, None)
    return InlineText(MarkedText("".join(texts), tuple(tags)), parents, frozenset(ordered), frozenset(visible))


class InlineBuilder:
    """Builds a tree from text and tags as they are read. A tag that is not closed is single."""

    def __init__(self) -> None:
        self.content: InlineContent = []
        self.tags: dict[int, tuple[str, str]] = {}
        """For each key the tag as it was written, and the one that closes it, or nothing."""
        self._open: list[tuple[str, int]] = []  # Names, and places in the content.
        self._names: Counter[str] = Counter()
        self._unclosed: set[int] = set()
        self._visible: set[int] = set()

    @property
    def is_open(self) -> bool:
        """True within a tag that may be closed later."""
        return bool(self._open)

    def add_text(self, text: str) -> None:
        if text:
            self.content.append(text)

    def flatten(self) -> InlineText:
        """The text with its tags. Those that are not closed stay in their order."""
        return flatten(self.content, self._unclosed, self._visible)

    def add_single(self, tag: str, *, is_visible: bool = False) -> int:
        """Add a tag, and return its key."""
        node = InlineNode(len(self.tags))
        self.tags[node.key] = tag, ""
        self.content.append(node)
        if is_visible:
            self._visible.add(node.key)
        return node.key

    def open(self, name: str, tag: str) -> None:
        self._open.append((name, len(self.content)))
        self._names[name] += 1
        self._unclosed.add(self.add_single(tag))

    def close(self, name: str, tag: str) -> None:
        if not self._names[name]:
            self._unclosed.add(self.add_single(tag))
            return
        opened, place = "", 0
        while opened != name:  # Tags in between are not closed.
            opened, place = self._open.pop()
            self._names[opened] -= 1
        node = self.content[place]
        assert isinstance(node, InlineNode)
        self._unclosed.remove(node.key)
        self.tags[node.key] = self.tags[node.key][0], tag
        self.content[place:] = [InlineNode(node.key, self.content[place + 1 :])]


def write_inline(content: InlineContent, tags: Mapping[int, tuple[str, str]], escape: Callable[[str], str]) -> str:
    """A tree as text with its tags as they were written."""
    parts = []
    for item in content:
        if isinstance(item, str):
            parts.append(escape(item))
        else:
            opening, closing = tags[item.key]
            parts += [opening, write_inline(item.content, tags, escape), closing]
    return "".join(parts)
