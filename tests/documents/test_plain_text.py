"""Plain text keeps its line breaks and indents."""

from benchmarks.documents import to_capitals

from dragoman.documents.plain_text import parse_text


def test_line_breaks_indents_and_lines_without_words_stay():
    document = parse_text(b"one\r\n\r\n two\n42\rthree")
    assert document.render([to_capitals(segment) for segment in document.segments]) == b"ONE\r\n\r\n TWO\n42\rTHREE"
