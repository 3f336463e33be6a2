"""XML elements in which text and inline elements alternate: paragraphs of OpenDocument, segments of XLIFF and TMX."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import TypeAlias

from lxml import etree

from dragoman.documents.document import has_words
from dragoman.documents.inline_tree import InlineContent, InlineNode, InlineText, flatten
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.xml_content import allowed_text, local_name


class InlineRole(Enum):
    """What an inline element is for the text around it."""

    AROUND = "around"
    """Its content is part of the text."""
    SINGLE = "single"
    """Its content, if there is any, is not part of the text."""
    START = "start"
    """Begins what a later sibling ends."""
    END = "end"
    CUT = "cut"
    """Text before it and behind it is translated separately."""
    CONTAINER = "container"
    """Likewise, and so is its content."""


@dataclass(frozen=True)
class InlineSchema:
    """The inline elements of a format."""

    role: Callable[[etree._Element], InlineRole]
    pair: Callable[[etree._Element], str] = lambda _: ""
    """Names what a START element and its END have in common."""
    collapses_space: bool = False
    """True if a line break in the text is a space."""


_Pair = tuple[etree._Element, etree._Element]
_Payload: TypeAlias = etree._Element | _Pair


@dataclass(frozen=True)
class MixedPiece:
    """A part of an element's content that is translated as one."""

    inline: InlineText
    payloads: Mapping[int, _Payload]
    """The elements of the keys; a pair for elements that begin and end."""


class MixedContent:
    """The content of an element: pieces of text, and elements at which it is cut."""

    def __init__(self, element: etree._Element, schema: InlineSchema) -> None:
        self._element = element
        self._schema = schema
        self._keys = count()
        self._payloads: dict[int, _Payload] = {}
        self._roles: dict[etree._Element, InlineRole] = {}
        self._inner: list[MixedContent] = []
        self._parts: list[MixedPiece | etree._Element] = []
        self._read_parts()

    @property
    def pieces(self) -> list[MixedPiece]:
        """Pieces with words, those of inner containers included."""
        own = [part for part in self._parts if isinstance(part, MixedPiece) and has_words(part.inline.marked.text)]
        return [*own, *(piece for inner in self._inner for piece in inner.pieces)]

    def write(self, translations: Mapping[int, MarkedText]) -> None:
        """Replace the content; translations are found by the identity of their pieces."""
        self._element.text = None
        for child in list(self._element):
            self._element.remove(child)
        for part in self._parts:
            if isinstance(part, MixedPiece):
                marked = translations.get(id(part), part.inline.marked)
                self._append(self._element, part.inline.nest(marked), part.payloads)
            else:
                part.tail = None
                self._element.append(part)
        for inner in self._inner:
            inner.write(translations)

    def _read_parts(self) -> None:
        content: InlineContent = []
        for item in [*_items(self._element), None]:
            role = self._role(item) if isinstance(item, etree._Element) else None
            if item is not None and role not in (InlineRole.CUT, InlineRole.CONTAINER):
                content.append(self._item(item))
                continue
            if content:
                self._parts.append(MixedPiece(self._flatten(self._nodes(content)), self._payloads))
                content = []
            if item is not None:
                assert not isinstance(item, str)
                self._parts.append(item)
                if role is InlineRole.CONTAINER:
                    self._inner.append(MixedContent(item, self._schema))

    def _flatten(self, content: InlineContent) -> InlineText:
        """The content as text. Starts and ends that are not joined stay in their order."""
        roles = {key: self._role(found) for key, found in self._payloads.items() if isinstance(found, etree._Element)}
        ordered = [key for key, role in roles.items() if role in (InlineRole.START, InlineRole.END)]
        return flatten(content, ordered, [key for key, role in roles.items() if role is InlineRole.SINGLE])

    def _role(self, element: etree._Element) -> InlineRole:
        if element not in self._roles:  # Found once for each: it depends on all that is inside.
            self._roles[element] = self._find_role(element)
        return self._roles[element]

    def _find_role(self, element: etree._Element) -> InlineRole:
        role = self._schema.role(element)
        if role is InlineRole.AROUND and any(
            isinstance(item, etree._Element) and self._role(item) in (InlineRole.CUT, InlineRole.CONTAINER)
            for item in _items(element)
        ):
            return InlineRole.CONTAINER
        return role

    def _nodes(self, items: InlineContent) -> InlineContent:
        """Give elements their content, join equal neighbours, and join the two elements of pairs."""
        content: InlineContent = []
        starts: list[int] = []  # Places in `content` of elements that begin something.
        for item in items:
            if isinstance(item, str):
                content.append(item)
                continue
            element = self._payloads[item.key]
            assert isinstance(element, etree._Element)
            role = self._role(element)
            if role is InlineRole.AROUND:
                before = content[-1] if content else None
                inner = self._nodes([self._item(child) for child in _items(element)])
                if isinstance(before, InlineNode) and self._is_alike(self._payloads[before.key], element):
                    before.content.extend(inner)
                    continue
                content.append(InlineNode(item.key, inner))
                continue
            if role is InlineRole.START:
                starts.append(len(content))
            elif role is InlineRole.END and starts and self._belong_together(content[starts[-1]], element):
                begin = starts.pop()
                start = content[begin]
                assert isinstance(start, InlineNode)
                opening = self._payloads[start.key]
                assert isinstance(opening, etree._Element)
                self._payloads[start.key] = opening, element
                content[begin:] = [InlineNode(start.key, content[begin + 1 :])]
                continue
            content.append(item)
        return content

    def _item(self, item: str | etree._Element) -> str | InlineNode:
        if isinstance(item, str):
            return item.replace("\n", " ") if self._schema.collapses_space else item
        return InlineNode(self._add(item))

    def _add(self, element: etree._Element) -> int:
        key = next(self._keys)
        self._payloads[key] = element
        return key

    def _is_alike(self, payload: _Payload, element: etree._Element) -> bool:
        return (
            isinstance(payload, etree._Element)
            and "id" not in payload.attrib
            and payload.tag == element.tag
            and dict(payload.attrib) == dict(element.attrib)
        )

    def _belong_together(self, start: str | InlineNode, end: etree._Element) -> bool:
        assert isinstance(start, InlineNode)
        element = self._payloads[start.key]
        return isinstance(element, etree._Element) and self._schema.pair(element) == self._schema.pair(end)

    def _append(self, parent: etree._Element, content: InlineContent, payloads: Mapping[int, _Payload]) -> None:
        for item in content:
            if isinstance(item, str):
                _append_text(parent, allowed_text(item))
                continue
            payload = payloads[item.key]
            if not isinstance(payload, etree._Element):
                start, end = payload
                start.tail = end.tail = None
                parent.append(start)
                self._append(parent, item.content, payloads)
                parent.append(end)
                continue
            payload.tail = None
            parent.append(payload)
            if self._schema.role(payload) is InlineRole.AROUND:
                payload.text = None
                for child in list(payload):
                    payload.remove(child)
                self._append(payload, item.content, payloads)


def write_all(contents: Sequence[MixedContent], translations: Sequence[MarkedText]) -> None:
    """Replace the contents by translations of all their pieces, in order."""
    pieces = [piece for content in contents for piece in content.pieces]
    by_identity = {id(piece): translation for piece, translation in zip(pieces, translations, strict=True)}
    for content in contents:
        content.write(by_identity)


def _items(element: etree._Element) -> Iterator[str | etree._Element]:
    if element.text:
        yield element.text
    for child in element:
        if local_name(child):
            yield child
        # The text behind comments and processing instructions counts, too.
        if child.tail:
            yield child.tail


def _append_text(parent: etree._Element, text: str) -> None:
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
