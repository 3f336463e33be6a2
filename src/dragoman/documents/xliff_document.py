"""XLIFF files, versions 1.2 and 2.x."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lxml import etree

from dragoman.corpus.language_codes import same_language
from dragoman.corpus.sources import Languages
from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.mixed_content import InlineRole, InlineSchema, MixedContent, write_all
from dragoman.documents.xml_content import local_name, namespace_of, parse_xml, write_xml

MAX_CODE_CHARACTERS = 35
"""Language codes in a file are compared up to this length."""
_ROLES = {
    "g": InlineRole.AROUND, "pc": InlineRole.AROUND, "mrk": InlineRole.AROUND,
    "bpt": InlineRole.START, "bx": InlineRole.START, "sc": InlineRole.START, "sm": InlineRole.START,
    "ept": InlineRole.END, "ex": InlineRole.END, "ec": InlineRole.END, "em": InlineRole.END,
}  # fmt: skip
_PROTECTED_MARKS = frozenset({"protected", "x-no-translate"})


@dataclass(frozen=True)
class _Version:
    """What differs between the versions."""

    source_language: str
    target_language: str
    """Attributes that state the languages."""
    unit: str
    """Element around a source and its target."""
    unfinished_states: frozenset[str]
    """Targets in these states are replaced; others that are not empty stay."""
    new_state: dict[str, str]
    """Attributes of a target, or of its segment, that was filled in."""


_VERSION_1 = _Version(
    "source-language", "target-language", "trans-unit", frozenset({"new", "needs-translation"}),
    {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"},
)  # fmt: skip
_VERSION_2 = _Version("srcLang", "trgLang", "segment", frozenset({"initial"}), {"state": "translated"})


def parse_xliff(content: bytes, languages: Languages) -> Document:
    """Fill in targets that are missing, empty or marked as untranslated. Others stay, and so do approved ones."""
    root = parse_xml(content)
    if local_name(root) != "xliff":
        raise UnreadableError("The file is not XLIFF: its root element is not <xliff>.")
    version = _VERSION_2 if root.get("version", "").startswith("2") else _VERSION_1
    holders = [root] if version is _VERSION_2 else [child for child in root if local_name(child) == "file"]
    for holder in holders:
        _check_languages(holder, version, languages)
    schema = InlineSchema(_role, _pair)
    units = [(unit, _new_target(unit)) for unit in _open_units(root, version)]
    contents = [MixedContent(target, schema) for _, target in units]

    def render(translations: Sequence[MarkedText]) -> bytes:
        write_all(contents, translations)
        for unit, target in units:
            _insert(unit, target, version)
        for holder in holders:
            if holder.get(version.target_language) is None:
                holder.set(version.target_language, languages.target)
        return write_xml(root)

    return Document([piece.inline.marked for content in contents for piece in content.pieces], render)


def _check_languages(holder: etree._Element, version: _Version, languages: Languages) -> None:
    for attribute, wanted in ((version.source_language, languages.source), (version.target_language, languages.target)):
        stated = holder.get(attribute, "")[:MAX_CODE_CHARACTERS]
        if stated and not same_language(stated, wanted):
            raise UnreadableError(
                f"The file states {attribute} {stated}, but the model translates from {languages.source} to "
                f"{languages.target}: choose another model."
            )


def _open_units(root: etree._Element, version: _Version) -> Iterator[etree._Element]:
    """Units that may be translated and have no finished target."""
    for unit in _translatable(root, version.unit):
        source, target = unit.find("{*}source"), unit.find("{*}target")
        if source is None or unit.get("approved") == "yes":
            continue
        # In version 2 the state stands at the segment.
        states = {unit.get("state") if version is _VERSION_2 else None, None if target is None else target.get("state")}
        is_empty = target is None or not "".join(target.itertext()).strip()
        if is_empty or states & version.unfinished_states:
            yield unit


def _translatable(root: etree._Element, unit: str) -> Iterator[etree._Element]:
    """Units for which the nearest `translate`, their own or that of an element around them, is not `no`."""
    stated = ["yes"]
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if event == "end":
            stated.pop()
            continue
        stated.append(element.get("translate") or stated[-1])
        if local_name(element) == unit and stated[-1] != "no":
            yield element


def _new_target(unit: etree._Element) -> etree._Element:
    """A target with the content of the source, which is translated afterwards."""
    source = unit.find("{*}seg-source")
    if source is None:
        source = unit.find("{*}source")
    previous = unit.find("{*}target")
    kept = {} if previous is None else {name: value for name, value in previous.attrib.items() if "state" not in name}
    target = copy.deepcopy(source)
    target.tag = f"{{{namespace_of(unit)}}}target" if namespace_of(unit) else "target"
    spaces = {name: value for name, value in source.attrib.items() if name.endswith("}space")}
    target.attrib.clear()
    target.attrib.update({**spaces, **kept})
    return target


def _insert(unit: etree._Element, target: etree._Element, version: _Version) -> None:
    place = target if version is _VERSION_1 else unit
    place.attrib.update(version.new_state)
    previous = unit.find("{*}target")
    if previous is not None:
        target.tail = previous.tail
        unit.replace(previous, target)
        return
    before = unit.find("{*}seg-source")
    if before is None:
        before = unit.find("{*}source")
    target.tail = before.tail
    unit.insert(unit.index(before) + 1, target)


def _role(element: etree._Element) -> InlineRole:
    name = local_name(element)
    if name == "mrk":
        if element.get("mtype") == "seg":
            return InlineRole.CONTAINER
        if element.get("mtype") in _PROTECTED_MARKS or element.get("translate") == "no":
            return InlineRole.SINGLE
    return _ROLES.get(name, InlineRole.SINGLE)


def _pair(element: etree._Element) -> str:
    """What both elements of a pair name: `rid`, else `id`; in version 2 the end names the `id` of its start."""
    name = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}.get(local_name(element), local_name(element))
    return f"{name} {element.get('startRef') or element.get('rid') or element.get('id')}"
