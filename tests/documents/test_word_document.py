"""Word documents: formats, links, fields and changes around translated words."""

import io

import docx
import pytest
from benchmarks.documents import in_reverse, to_capitals
from benchmarks.sample_documents import make_docx
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn

from dragoman.documents.document import UnreadableError
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.word_document import parse_docx

W = nsdecls("w", "r")


def document_of(*pieces: str) -> bytes:
    """A document with one paragraph of these elements."""
    document = docx.Document()
    document.add_paragraph()._p.extend(parse_xml(f"<w:p {W}>{''.join(pieces)}</w:p>"))
    content = io.BytesIO()
    document.save(content)
    return content.getvalue()


def run(text: str, properties: str = "") -> str:
    formatted = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{formatted}<w:t xml:space="preserve">{text}</w:t></w:r>'


def translated(content: bytes, *translations: MarkedText) -> docx.document.Document:
    return docx.Document(io.BytesIO(parse_docx(content).render(translations)))


def test_runs_that_look_the_same_are_one_text():
    content = document_of(run("The tea"), run("cher ", '<w:lang w:val="en-GB"/>'), run("reads"))
    assert parse_docx(content).segments == [MarkedText("The teacher reads")]


def test_the_format_of_most_characters_needs_no_tag():
    content = document_of(run("All of this is bold ", "<w:b/>"), run("but not this"))
    [segment] = parse_docx(content).segments
    assert segment.text[segment.tags[0].start : segment.tags[0].end] == "but not this"
    [paragraph] = translated(content, MarkedText("Dies nicht aber das ist fett", (InlineTag(0, 10, 0),))).paragraphs
    assert [(run.text, run.bold) for run in paragraph.runs] == [("Dies nicht", None), (" aber das ist fett", True)]


def test_text_is_cut_at_tabs_and_line_breaks_and_they_stay_in_place():
    content = document_of("<w:r><w:t>Name</w:t><w:tab/><w:t>Anna</w:t><w:br/><w:t>Age</w:t></w:r>")
    assert [segment.text for segment in parse_docx(content).segments] == ["Name", "Anna", "Age"]
    [paragraph] = translated(content, *map(MarkedText, ("Der Name", "Anna", "Alter"))).paragraphs
    assert paragraph.text == "Der Name\tAnna\nAlter"
    assert len(paragraph.runs) == 1


def test_entries_of_a_table_of_contents_are_cut_at_the_tab_inside_their_link():
    content = document_of(
        '<w:hyperlink w:anchor="a"><w:r><w:t>Introduction</w:t></w:r><w:r><w:tab/></w:r><w:r><w:t>7</w:t></w:r>'
        "</w:hyperlink>"
    )
    [paragraph] = translated(content, MarkedText("Einleitung")).paragraphs
    assert paragraph.hyperlinks[0].text == "Einleitung\t7"


def test_outer_spaces_are_preserved():
    content = document_of(run("one "), run("two", "<w:b/>"))
    [segment] = parse_docx(content).segments
    [paragraph] = translated(content, MarkedText("eins zwei", (InlineTag(5, 9, segment.tags[0].key),))).paragraphs
    assert paragraph._p.findall(qn("w:r"))[0].find(qn("w:t")).get(qn("xml:space")) == "preserve"
    assert paragraph.text == "eins zwei"


def test_fields_deletions_and_equations_keep_their_text():
    document = parse_docx(make_docx())
    rendered = docx.Document(io.BytesIO(document.render([to_capitals(segment) for segment in document.segments])))
    xml = rendered.element.xml
    for kept in ("November", "Somebody", "deleted", "energy", "DATE \\@ MMMM"):
        assert kept in xml, kept
    assert "INSERTED WORDS" in xml


def test_results_of_link_fields_are_translated():
    content = document_of(
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>', '<w:r><w:instrText> HYPERLINK "a" </w:instrText></w:r>',
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r>', run("the link"),
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
    )  # fmt: skip
    [segment] = parse_docx(content).segments
    assert segment.text == "the link"


@pytest.mark.parametrize("change", [to_capitals, in_reverse])
def test_every_element_beside_text_occurs_as_often_as_before(change):
    content = make_docx()
    document = parse_docx(content)
    rendered = document.render([change(segment) for segment in document.segments])
    names = ("bookmarkStart", "bookmarkEnd", "hyperlink", "drawing", "fldChar", "fldSimple", "del", "ins", "tab", "br",
             "commentRangeStart", "commentReference", "oMath")  # fmt: skip

    def count(archive: bytes) -> list[int]:
        body = docx.Document(io.BytesIO(archive)).element
        return [len(list(body.iter(f"{{*}}{name}"))) for name in names]

    assert count(rendered) == count(content)


def test_text_boxes_are_translated():
    box = (
        "<w:r><w:t>Outside</w:t></w:r>",
        '<w:r><w:pict><v:textbox xmlns:v="urn:schemas-microsoft-com:vml"><w:txbxContent><w:p><w:r><w:t>Inside</w:t>'
        "</w:r></w:p></w:txbxContent></v:textbox></w:pict></w:r>",
    )
    content = document_of(*box)
    document = parse_docx(content)
    assert [segment.text for segment in document.segments] == ["Outside", "Inside"]
    xml = docx.Document(io.BytesIO(document.render([to_capitals(s) for s in document.segments]))).element.xml
    assert "OUTSIDE" in xml
    assert "INSIDE" in xml


def test_another_office_file_is_refused():
    from benchmarks.sample_documents import make_odt, make_pptx

    with pytest.raises(UnreadableError, match="not a Word document"):
        parse_docx(make_pptx())
    with pytest.raises(UnreadableError, match="not an Office document"):
        parse_docx(make_odt())


def test_characters_that_xml_does_not_allow_are_replaced():
    [paragraph] = translated(document_of(run("text")), MarkedText("a\x00b")).paragraphs
    assert paragraph.text == "a\ufffdb"


def test_the_parts_of_a_field_stay_in_order_when_words_change_places():
    content = document_of(
        run("Before "), '<w:r><w:fldChar w:fldCharType="begin"/></w:r>',
        '<w:r><w:instrText> HYPERLINK "a" </w:instrText></w:r>', '<w:r><w:fldChar w:fldCharType="separate"/></w:r>',
        run("the link"), '<w:r><w:fldChar w:fldCharType="end"/></w:r>', run(" behind"),
    )  # fmt: skip
    document = parse_docx(content)
    xml = docx.Document(io.BytesIO(document.render([in_reverse(s) for s in document.segments]))).element.xml
    places = [xml.index(mark) for mark in ('"begin"', "HYPERLINK", '"separate"', '"end"')]
    assert places == sorted(places)
