"""Inline markup as a tree, as files contain it, and as a text with tags, as translators take it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
    """A text with tags, and how they were nested."""

    marked: MarkedText
    parents: Mapping[int, int]
    """For each key the one of the tag around it, if there is one."""

    def nest(self, translation: MarkedText) -> InlineContent:
        """A translation as a tree.

        Of a tag at the end of another, positions do not say whether it is inside or behind: it stays where it was.
        """
        root = InlineNode(-1)
        open_tags: list[tuple[InlineNode, int]] = [(root, len(translation.text))]
        position = 0

        def add_text(until: int) -> None:
            nonlocal position
            if until > position:
                open_tags[-1][0].content.append(translation.text[position:until])
                position = until

        for tag in sorted(translation.tags, key=lambda tag: tag.start):
            while len(open_tags) > 1 and not self._holds(*open_tags[-1], tag):
                add_text(open_tags[-1][1])
                open_tags.pop()
            add_text(tag.start)
            node = InlineNode(tag.key)
            open_tags[-1][0].content.append(node)
            open_tags.append((node, tag.end))
        while open_tags:
            add_text(open_tags[-1][1])
            open_tags.pop()
        return root.content

    def _holds(self, node: InlineNode, end: int, tag: InlineTag) -> bool:
        return tag.start < end or (tag.start == end and self._was_inside(tag.key, node.key))

    def _was_inside(self, key: int, outer: int) -> bool:
        current: int | None = key
        while current is not None and current != outer:
            current = self.parents.get(current)
        return current == outer


def flatten(content: Iterable[str | InlineNode]) -> InlineText:
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
    return InlineText(MarkedText("".join(texts), tuple(tags)), parents)


class InlineBuilder:
    """Builds a tree from text and tags as they are read. A tag that is not closed is single."""

    def __init__(self) -> None:
        self.content: InlineContent = []
        self.tags: dict[int, tuple[str, str]] = {}
        """For each key the tag as it was written, and the one that closes it, or nothing."""
        self._open: list[tuple[str, int]] = []  # Names, and places in the content.
        self._names: Counter[str] = Counter()

    @property
    def is_open(self) -> bool:
        """True within a tag that may be closed later."""
        return bool(self._open)

    def add_text(self, text: str) -> None:
        if text:
            self.content.append(text)

    def add_single(self, tag: str) -> int:
        """Add a tag, and return its key."""
        node = InlineNode(len(self.tags))
        self.tags[node.key] = tag, ""
        self.content.append(node)
        return node.key

    def open(self, name: str, tag: str) -> None:
        self._open.append((name, len(self.content)))
        self._names[name] += 1
        self.add_single(tag)

    def close(self, name: str, tag: str) -> None:
        if not self._names[name]:
            self.add_single(tag)
            return
        opened, place = "", 0
        while opened != name:  # Tags in between are not closed.
            opened, place = self._open.pop()
            self._names[opened] -= 1
        node = self.content[place]
        assert isinstance(node, InlineNode)
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
