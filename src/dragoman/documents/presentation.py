"""PowerPoint presentations (PPTX)."""

from collections.abc import Sequence

from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.office_package import find_parts, parse_parts
from dragoman.documents.office_runs import RunPiece, find_pieces
from dragoman.documents.xml_content import write_xml
from dragoman.documents.zip_package import ZipPackage

SLIDE_PARTS = ("slide", "notesSlide")
DRAWING_PARTS = ("diagramData", "diagramDrawing", "chart")
"""Parts of drawings that have text: diagrams (twice, as data and as shapes), and titles of charts."""


def parse_pptx(content: bytes) -> Document:
    """Translate the texts of slides, with tables, diagrams and notes. Masters and layouts are kept."""
    package = ZipPackage(content)
    slides = find_parts(package, "presentationml", SLIDE_PARTS)
    if not slides and not find_parts(package, "presentationml", ["presentation.main"]):
        raise UnreadableError("The file is not a PowerPoint presentation: check its extension.")
    parts = parse_parts(package, [*slides, *find_parts(package, "drawingml", DRAWING_PARTS)])
    pieces: list[RunPiece] = []
    changed = []
    for name, root in parts.items():
        found = [
            piece
            for paragraph in list(root.iter("{*}p"))
            if "drawingml" in paragraph.tag
            for piece in find_pieces(paragraph, lambda _: False)
        ]
        pieces += found
        if found:
            changed.append(name)

    def render(translations: Sequence[MarkedText]) -> bytes:
        for piece, translation in zip(pieces, translations, strict=True):
            piece.replace(translation)
        return package.replace({name: write_xml(parts[name]) for name in changed})

    return Document([piece.inline.marked for piece in pieces], render)
