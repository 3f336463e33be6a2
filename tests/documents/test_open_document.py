"""OpenDocument: paragraphs with their spans, notes and fields."""

import io

import pytest
from benchmarks.documents import in_reverse, to_capitals
from benchmarks.sample_documents import make_docx, make_odt
from lxml import etree
from odf import text
from odf.opendocument import OpenDocumentText

from dragoman.documents.document import UnreadableError
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.open_document import TEXT, parse_open_document
from dragoman.documents.zip_package import ZipPackage


def document_of(*paragraphs: text.P) -> bytes:
    document = OpenDocumentText()
    for paragraph in paragraphs:
        document.text.addElement(paragraph)
    content = io.BytesIO()
    document.write(content)
    return content.getvalue()


def content_xml(package: bytes) -> etree._Element:
    return etree.fromstring(ZipPackage(package).read("content.xml"))


def test_neighbouring_spans_of_one_style_are_one_text():
    segments = {segment.text: segment for segment in parse_open_document(make_odt()).segments}
    tags = segments["The teacher reads a very long book in the garden."].tags
    assert [(tag.start, tag.end) for tag in tags] == [(18, 29), (34, 34)]


def test_text_is_cut_at_tabs_and_line_breaks():
    paragraph = text.P(text="Name")
    paragraph.addElement(text.Tab())
    paragraph.addText("Anna")
    assert [segment.text for segment in parse_open_document(document_of(paragraph)).segments] == ["Name", "Anna"]


def test_a_span_around_a_line_break_keeps_it():
    span = text.Span(text="one")
    span.addElement(text.LineBreak())
    span.addText("two")
    paragraph = text.P(text="zero ")
    paragraph.addElement(span)
    document = parse_open_document(document_of(paragraph))
    root = content_xml(document.render([to_capitals(segment) for segment in document.segments]))
    rendered = root.find(f".//{TEXT}span")
    assert rendered.text == "ONE"
    assert rendered[0].tag == f"{TEXT}line-break"
    assert rendered[0].tail == "TWO"


@pytest.mark.parametrize("change", [to_capitals, in_reverse])
def test_every_element_occurs_as_often_as_before(change):
    content = make_odt()
    document = parse_open_document(content)
    rendered = document.render([change(segment) for segment in document.segments])
    names = ("note", "tab", "line-break", "a", "page-number", "s", "p", "h", "list-item")
    before, after = (
        [len(list(content_xml(package).iter(f"{TEXT}{name}"))) for name in names] for package in (content, rendered)
    )
    assert before == after


def test_deleted_text_is_not_translated():
    package = ZipPackage(document_of(text.P(text="Kept")))
    changes = (
        '<text:tracked-changes xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><text:changed-region>'
        "<text:deletion><text:p>Deleted</text:p></text:deletion></text:changed-region></text:tracked-changes>"
    )
    root = etree.fromstring(package.read("content.xml"))
    root.find(f".//{TEXT}p").addprevious(etree.fromstring(changes))
    content = package.replace({"content.xml": etree.tostring(root)})
    assert parse_open_document(content).segments == [MarkedText("Kept")]


def test_other_files_are_refused():
    with pytest.raises(UnreadableError, match="not an OpenDocument"):
        parse_open_document(make_docx())
