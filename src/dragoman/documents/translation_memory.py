"""TMX translation memories."""

import copy
from collections.abc import Iterator, Sequence

from lxml import etree

from dragoman.corpus.language_codes import same_language
from dragoman.corpus.sources import Languages
from dragoman.corpus.xml_pairs import XML_LANG
from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.mixed_content import InlineRole, InlineSchema, MixedContent, write_all
from dragoman.documents.xml_content import local_name, parse_xml, write_xml

MAX_CODE_CHARACTERS = 35
"""Language codes in a file are compared up to this length."""
_ROLES = {"hi": InlineRole.AROUND, "bpt": InlineRole.START, "ept": InlineRole.END}


def parse_tmx(content: bytes, languages: Languages) -> Document:
    """Add a target variant to each unit that has none, with the inline codes of the source."""
    root = parse_xml(content)
    if root.find(".//{*}tu") is None and local_name(root) != "tu":
        raise UnreadableError("The file contains no translation units (tu): check that it is TMX.")
    schema = InlineSchema(
        lambda element: _ROLES.get(local_name(element), InlineRole.SINGLE), lambda element: element.get("i", "")
    )
    units = [(unit, copy.deepcopy(segment)) for unit, segment in _incomplete_units(root, languages)]
    contents = [MixedContent(segment, schema) for _, segment in units]

    def render(translations: Sequence[MarkedText]) -> bytes:
        write_all(contents, translations)
        for unit, segment in units:
            attributes = {XML_LANG: languages.target, "creationid": "dragoman"}
            variant = etree.SubElement(unit, f"{unit.tag.rpartition('tu')[0]}tuv", attributes)
            segment.tail = None
            variant.append(segment)
        return write_xml(root)

    return Document([piece.inline.marked for content in contents for piece in content.pieces], render)


def _incomplete_units(root: etree._Element, languages: Languages) -> Iterator[tuple[etree._Element, etree._Element]]:
    """Units that have a source variant, but no target variant, with the segment of the former."""
    for unit in root.iter("{*}tu"):  # Not as a list: building one would hold the GIL all the time.
        segments = {_language(variant): variant.find("{*}seg") for variant in unit.findall("{*}tuv")}
        original = next((seg for code, seg in segments.items() if same_language(code, languages.source)), None)
        if original is not None and not any(same_language(code, languages.target) for code in segments):
            yield unit, original


def _language(variant: etree._Element) -> str:
    return str(variant.get(XML_LANG) or variant.get("lang") or "")[:MAX_CODE_CHARACTERS]
