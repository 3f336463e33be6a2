"""Paragraphs of Word and PowerPoint: runs of equally formatted text, with other elements between them.

A paragraph is cut at tabs and line breaks into pieces, which are translated each on its own. In a piece, the format of
most characters is the ground; runs in other formats, and links, become tags around words. Everything else, such as
images, bookmarks and fields, becomes a single tag.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from lxml import etree

from dragoman.documents.document import has_words
from dragoman.documents.inline_tree import InlineContent, InlineNode, InlineText, flatten
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.xml_content import XML_SPACE, allowed_text, local_name

WRAPPERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "customXml", "dir", "bdo"})
"""Elements around runs that are tags around words."""
CUTS = frozenset({"tab", "ptab", "br", "cr"})
"""Parts of runs, or elements between them, at which a paragraph is cut."""
_PROPERTIES = frozenset({"pPr", "rPr", "endParaRPr", "sdtPr", "sdtEndPr", "smartTagPr", "customXmlPr"})
_OUTSIDE_TEXT = frozenset({"pPr", "endParaRPr"}) | CUTS
# They say how a run is spell-checked, not how it looks.
_IGNORED_PROPERTIES = frozenset({"lang", "noProof"})
_IGNORED_ATTRIBUTES = frozenset({"lang", "altLang", "dirty", "err", "smtClean", "noProof"})
_VISIBLE = frozenset({"r", "fldSimple", "fld", "oMath"})
_MERGED = frozenset({"rPr", "t"}) | CUTS
_TEXT_OF = {"noBreakHyphen": "-", "softHyphen": ""}

IsKept = Callable[[etree._Element], bool]
"""True for runs that are not translated, such as those of a field."""


@dataclass(frozen=True)
class RunFormat:
    """The properties of a run. Two formats are equal if their runs look the same."""

    look: bytes
    properties: etree._Element | None = field(compare=False)


_Payload: TypeAlias = etree._Element | RunFormat


@dataclass(frozen=True)
class RunPiece:
    """Neighbouring elements of a paragraph that are translated together."""

    elements: list[etree._Element]
    inline: InlineText
    payloads: dict[int, _Payload]
    """What the keys stand for: a format, an element around runs, or a single element."""
    grounds: dict[int, RunFormat]
    """The formats of text directly in the piece, with key -1, and directly in elements around runs."""

    def replace(self, translation: MarkedText) -> None:
        """Put a translation in the place of the elements."""
        first = self.elements[0]
        parent = first.getparent()
        place = parent.index(first)
        for element in self.elements:
            parent.remove(element)
        run_name = parent.tag.rpartition("}")[0] + "}r"
        for element in self._render(self.inline.nest(translation), self.grounds[-1], run_name):
            parent.insert(place, element)
            place += 1

    def _render(self, content: InlineContent, ground: RunFormat, run_name: str) -> Iterator[etree._Element]:
        for item in content:
            if isinstance(item, str):
                yield _make_run(run_name, ground, item)
                continue
            payload = self.payloads[item.key]
            if isinstance(payload, RunFormat):
                yield from self._render(item.content, payload, run_name)
            elif item.key in self.grounds:
                for child in list(payload):
                    if local_name(child) not in _PROPERTIES:
                        payload.remove(child)
                payload.extend(list(self._render(item.content, self.grounds[item.key], run_name)))
                yield payload
            else:
                yield payload


def find_pieces(paragraph: etree._Element, is_kept: IsKept) -> list[RunPiece]:
    """The pieces of a paragraph that have words. Its runs are split, so that each has one kind of content."""
    if not any(has_words(text.text or "") for text in paragraph.iter("{*}t")):
        return []
    _split_runs(paragraph, is_kept)
    groups: list[list[etree._Element]] = []
    _collect_groups(paragraph, is_kept, groups)
    pieces = (_PieceReader(is_kept).read(group) for group in groups if group)
    return [piece for piece in pieces if has_words(piece.inline.marked.text)]


def merge_runs(paragraph: etree._Element) -> None:
    """Join neighbouring runs of the same look: the opposite of splitting them."""
    for container in [paragraph, *(child for child in paragraph.iter("{*}hyperlink", "{*}ins", "{*}sdtContent"))]:
        previous: tuple[etree._Element, bytes] | None = None
        for child in list(container):
            if local_name(child) != "r" or not all(local_name(part) in _MERGED for part in child):
                previous = None
                continue
            look = _format_of(child).look
            if previous is not None and previous[1] == look:
                previous[0].extend([part for part in child if local_name(part) != "rPr"])
                container.remove(child)
            else:
                previous = child, look


def _split_runs(container: etree._Element, is_kept: IsKept) -> None:
    for child in list(container):
        name = local_name(child)
        if name == "r" and not is_kept(child):
            parts = [part for part in child if local_name(part) != "rPr"]
            for part in parts[:-1]:
                run = etree.Element(child.tag, child.attrib)
                properties = child.find("{*}rPr")
                if properties is not None:
                    run.append(copy.deepcopy(properties))
                run.append(part)
                child.addprevious(run)
        elif name in WRAPPERS or name in ("sdt", "sdtContent"):
            _split_runs(child, is_kept)


def _collect_groups(container: etree._Element, is_kept: IsKept, groups: list[list[etree._Element]]) -> None:
    """Neighbours without a cut between them. Elements that hold a cut are containers of their own."""
    group: list[etree._Element] = []
    for child in container:
        name = local_name(child)
        is_container = name in ("sdt", "sdtContent") or (name in WRAPPERS and _has_cut(child, is_kept))
        if is_container or name in _PROPERTIES | _OUTSIDE_TEXT or _is_cut(child, is_kept):
            groups.append(group)
            group = []
            if is_container:
                _collect_groups(child, is_kept, groups)
        else:
            group.append(child)
    groups.append(group)


def _is_cut(run: etree._Element, is_kept: IsKept) -> bool:
    return local_name(run) == "r" and not is_kept(run) and any(local_name(part) in CUTS for part in run)


def _has_cut(wrapper: etree._Element, is_kept: IsKept) -> bool:
    return any(
        _is_cut(child, is_kept) or name == "sdt" or (name in WRAPPERS and _has_cut(child, is_kept))
        for child in wrapper
        for name in [local_name(child)]
    )


class _PieceReader:
    """Reads neighbouring elements as a text with tags."""

    def __init__(self, is_kept: IsKept) -> None:
        self._is_kept = is_kept
        self._keys = count()
        self._payloads: dict[int, _Payload] = {}
        self._grounds: dict[int, RunFormat] = {}

    def read(self, elements: list[etree._Element]) -> RunPiece:
        content = self._read(elements, -1)
        singles = {key for key, payload in self._payloads.items() if key not in self._grounds and _is_element(payload)}
        visible = {key for key in singles if local_name(self._payloads[key]) in _VISIBLE}
        return RunPiece(elements, flatten(content, singles, visible), self._payloads, self._grounds)

    def _read(self, elements: Sequence[etree._Element], key: int) -> InlineContent:
        formats = [self._text_format(element) for element in elements]
        sizes: Counter[RunFormat] = Counter()
        for element, look in zip(elements, formats, strict=True):
            if look is not None:
                sizes[look] += len(_run_text(element))
        ground = max(sizes, key=lambda look: sizes[look], default=RunFormat(b"", None))
        self._grounds[key] = ground
        content: InlineContent = []
        open_format, place = ground, content
        waiting: InlineContent = []  # Single elements: inside the format if it goes on behind them, else outside.
        for element, look in zip(elements, formats, strict=True):
            if look is None:
                waiting.append(self._node(element))
                continue
            if look == open_format:
                place += waiting
            else:
                content += waiting
                open_format, place = look, content
                if look != ground:
                    node = InlineNode(self._add(look))
                    content.append(node)
                    place = node.content
            waiting = []
            place.append(_run_text(element))
        content += waiting
        return content

    def _text_format(self, element: etree._Element) -> RunFormat | None:
        """The format of a run of text; None for everything else."""
        if local_name(element) != "r" or self._is_kept(element):
            return None
        parts = [local_name(part) for part in element if local_name(part) != "rPr"]
        if not parts or any(part != "t" and part not in _TEXT_OF for part in parts):
            return None
        return _format_of(element)

    def _node(self, element: etree._Element) -> InlineNode:
        key = self._add(element)
        if local_name(element) not in WRAPPERS:
            return InlineNode(key)
        return InlineNode(key, self._read([child for child in element if local_name(child) not in _PROPERTIES], key))

    def _add(self, payload: _Payload) -> int:
        key = next(self._keys)
        self._payloads[key] = payload
        return key


def _is_element(payload: _Payload) -> bool:
    return not isinstance(payload, RunFormat)


def _run_text(run: etree._Element) -> str:
    return "".join((part.text or "") if local_name(part) == "t" else _TEXT_OF.get(local_name(part), "") for part in run)


def _format_of(run: etree._Element) -> RunFormat:
    properties = run.find("{*}rPr")
    if properties is None:
        return RunFormat(b"", None)
    visible = [child for child in properties if local_name(child) not in _IGNORED_PROPERTIES]
    attributes = sorted((name, value) for name, value in properties.attrib.items() if name not in _IGNORED_ATTRIBUTES)
    look = b"".join(etree.tostring(child, method="c14n", with_tail=False) for child in visible)
    return RunFormat(look + repr(attributes).encode() if attributes else look, properties)


def _make_run(name: str, ground: RunFormat, text: str) -> etree._Element:
    run = etree.Element(name)
    if ground.properties is not None:
        run.append(copy.deepcopy(ground.properties))
    part = etree.SubElement(run, name[:-1] + "t")
    part.text = allowed_text(text)
    # Only Word drops outer spaces; PowerPoint does not know the attribute.
    if "wordprocessingml" in name and text != text.strip():
        part.set(XML_SPACE, "preserve")
    return run
