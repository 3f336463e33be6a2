"""PowerPoint: text of slides, tables, groups and notes."""

import io

import pptx
import pytest
from benchmarks.documents import to_capitals
from benchmarks.sample_documents import make_docx, make_pptx

from dragoman.documents.document import UnreadableError
from dragoman.documents.presentation import parse_pptx


def test_slides_tables_groups_and_notes_are_translated():
    document = parse_pptx(make_pptx())
    presentation = pptx.Presentation(io.BytesIO(document.render([to_capitals(s) for s in document.segments])))
    [slide] = presentation.slides
    assert slide.shapes.title.text == "THE TITLE OF THE SLIDE"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    assert [(run.text, run.font.bold) for run in paragraph.runs] == [
        ("THE TEACHER ", False), ("READS", True), (" A BOOK.", False), ("A NEW LINE", None),
    ]  # fmt: skip
    assert paragraph.runs[1].hyperlink.address == "https://example.org"
    assert slide.notes_slide.notes_text_frame.text == "NOTES OF THE SPEAKER"
    texts = [shape.text_frame.text for shape in slide.shapes[-1].shapes]
    assert texts == ["IN A GROUP"]


def test_a_presentation_without_text_stays_the_same():
    empty = io.BytesIO()
    pptx.Presentation().save(empty)
    document = parse_pptx(empty.getvalue())
    assert document.segments == []
    assert pptx.Presentation(io.BytesIO(document.render([])))


def test_other_files_are_refused():
    with pytest.raises(UnreadableError, match="not a PowerPoint presentation"):
        parse_pptx(make_docx())
