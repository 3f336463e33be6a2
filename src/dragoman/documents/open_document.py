"""Text documents and presentations of OpenDocument (ODT, ODP), as LibreOffice writes them."""

from collections.abc import Sequence

from lxml import etree

from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.mixed_content import InlineRole, InlineSchema, MixedContent, write_all
from dragoman.documents.xml_content import local_name, parse_xml, write_xml
from dragoman.documents.zip_package import ZipPackage

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
TEXT_PARTS = ("content.xml", "styles.xml")
"""The text itself; headers and footers."""
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")
MANIFEST = "META-INF/manifest.xml"
_RANGES = ("bookmark", "reference-mark", "change", "alphabetical-index-mark", "toc-mark", "user-index-mark")
"""Elements that mark the begin and the end of a part of the text."""
_ROLES = {
    f"{TEXT}span": InlineRole.AROUND,
    f"{TEXT}a": InlineRole.AROUND,
    **{f"{TEXT}{name}-start": InlineRole.START for name in _RANGES},
    **{f"{TEXT}{name}-end": InlineRole.END for name in _RANGES},
    f"{TEXT}tab": InlineRole.CUT,
    f"{TEXT}line-break": InlineRole.CUT,
}


def parse_open_document(content: bytes) -> Document:
    """Translate paragraphs and headings, with tables, notes, text boxes, comments, headers and footers.

    Deleted text of tracked changes, fields and equations are kept.
    """
    package = ZipPackage(content)
    if "content.xml" not in package.names:
        raise UnreadableError("The file is not an OpenDocument: check its extension.")
    if MANIFEST in package.names and b"encryption-data" in package.read(MANIFEST):
        raise UnreadableError("The file is encrypted: save it without a password.")
    parts = {name: parse_xml(package.read(name), name) for name in TEXT_PARTS if name in package.names}
    schema = InlineSchema(lambda element: _ROLES.get(element.tag, InlineRole.SINGLE), _range_name, True)
    contents: list[MixedContent] = []
    changed = []
    for name, root in parts.items():
        deleted = {
            paragraph for changes in root.iter(f"{TEXT}tracked-changes") for paragraph in changes.iter(*PARAGRAPHS)
        }
        paragraphs = [MixedContent(found, schema) for found in list(root.iter(*PARAGRAPHS)) if found not in deleted]
        with_words = [paragraph for paragraph in paragraphs if paragraph.pieces]
        contents += with_words
        if with_words:
            changed.append(name)

    def render(translations: Sequence[MarkedText]) -> bytes:
        write_all(contents, translations)
        return package.replace({name: write_xml(parts[name]) for name in changed})

    return Document([piece.inline.marked for content in contents for piece in content.pieces], render)


def _range_name(element: etree._Element) -> str:
    """What the two elements of a range have in common: their kind, and their name or number."""
    kind = local_name(element).rpartition("-")[0]
    return f"{kind} {next((element.get(f'{TEXT}{key}') for key in ('name', 'id', 'change-id')), None)}"
