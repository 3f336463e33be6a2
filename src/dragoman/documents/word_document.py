"""Word documents (DOCX)."""

from collections.abc import Sequence

from lxml import etree

from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.office_package import find_parts, parse_parts
from dragoman.documents.office_runs import RunPiece, find_pieces, merge_runs
from dragoman.documents.xml_content import local_name, write_xml
from dragoman.documents.zip_package import ZipPackage

TEXT_PARTS = ("document.main", "template.main", "header", "footer", "footnotes", "endnotes", "comments")
"""Kinds of parts with text, as in their content types."""
TRANSLATED_FIELDS = frozenset({"HYPERLINK", "TOC"})
"""Fields whose result is text. Numbers, dates and references are kept; Word computes them again."""


def parse_docx(content: bytes) -> Document:
    """Translate the text, headers, footers, notes and comments. Deleted text, equations and fields are kept."""
    package = ZipPackage(content)
    parts = parse_parts(package, find_parts(package, "wordprocessingml", TEXT_PARTS))
    if not parts:
        raise UnreadableError("The file is not a Word document: check its extension.")
    pieces: list[RunPiece] = []
    paragraphs: dict[str, list[etree._Element]] = {}
    for name, root in parts.items():
        kept = _runs_of_fields(root)
        for paragraph in list(root.iter("{*}p")):
            if "wordprocessingml" in paragraph.tag and (found := find_pieces(paragraph, kept.__contains__)):
                pieces += found
                paragraphs.setdefault(name, []).append(paragraph)

    def render(translations: Sequence[MarkedText]) -> bytes:
        for piece, translation in zip(pieces, translations, strict=True):
            piece.replace(translation)
        for changed in paragraphs.values():
            for paragraph in changed:
                merge_runs(paragraph)
        return package.replace({name: write_xml(parts[name]) for name in paragraphs})

    return Document([piece.inline.marked for piece in pieces], render)


def _runs_of_fields(root: etree._Element) -> set[etree._Element]:
    """Runs that begin, end or describe a field, and those of results that are kept."""
    runs = set()
    fields: list[tuple[list[str], bool]] = []  # Of each open field: its instruction, and whether the result began.
    for run in root.iter("{*}r"):
        marks = [part for part in run if local_name(part) in ("fldChar", "instrText")]
        for mark in marks:
            if local_name(mark) == "instrText":
                if fields:
                    fields[-1][0].append(mark.text or "")
                continue
            kind = next((value for name, value in mark.attrib.items() if name.endswith("fldCharType")), "")
            if kind == "begin":
                fields.append(([], False))
            elif fields and kind == "separate":
                fields[-1] = fields[-1][0], True
            elif fields and kind == "end":
                fields.pop()
        if marks or not all(_is_translated(*field) for field in fields):
            runs.add(run)
    return runs


def _is_translated(instruction: list[str], has_result: bool) -> bool:
    return has_result and "".join(instruction).split(maxsplit=1)[:1] in [[name] for name in TRANSLATED_FIELDS]
