"""Subtitles: the text of cues is translated, times and tags stay."""

import pytest
from benchmarks.documents import to_capitals

from dragoman.documents.document import UnreadableError
from dragoman.documents.marked_text import InlineTag, MarkedText
from dragoman.documents.subtitles import parse_srt, parse_vtt

CUE = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{}\r\n\r\n"


def test_lines_of_a_cue_are_one_text_and_wrapped_again():
    document = parse_srt(CUE.format("The teacher reads\r\na book.").encode())
    assert document.segments == [MarkedText("The teacher reads a book.")]
    rendered = document.render([MarkedText("Der Lehrer liest heute ein Buch.")])
    assert rendered.decode() == CUE.format("Der Lehrer liest\r\nheute ein Buch.")


def test_an_empty_translation_leaves_an_empty_cue():
    document = parse_srt(CUE.format("The teacher reads\r\na book.").encode())
    assert document.render([MarkedText("")]).decode() == CUE.format("")


def test_lines_of_speakers_are_texts_of_their_own():
    document = parse_srt(CUE.format("- Who is there?\r\n<i>- Me.</i>").encode())
    assert [segment.text for segment in document.segments] == ["Who is there?", "Me."]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("- Who is there?\r\n- Only me.", "- WHO IS THERE?\r\n- ONLY ME."),
        ("-Who?\r\n–  <b>Me</b>.\r\n{\\an8}<i>— The cat\r\nand I.</i>",
         "-WHO?\r\n–  <b>ME</b>.\r\n{\\an8}<i>— THE CAT\r\nAND I.</i>"),
        ("All:\r\n -- Well-known - yes.", "ALL:\r\n -- WELL-KNOWN - YES."),
        ("Me,\r\n <i> - you.</i>", "ME,\r\n <i> - YOU.</i>"),
        ("--> here", "-> HERE"),
    ],
)  # fmt: skip
def test_dashes_of_speakers_are_not_translated(lines, expected):
    document = parse_srt(CUE.format(lines).encode())
    assert document.render([to_capitals(segment) for segment in document.segments]).decode() == CUE.format(expected)


def test_a_dash_stays_in_front_if_the_tags_move():
    document = parse_srt(CUE.format("<i>- Only</i> the cat").encode())
    [segment] = document.segments
    rendered = document.render([MarkedText("die Katze nur", (InlineTag(10, 13, segment.tags[0].key),))])
    assert rendered.decode() == CUE.format("- die Katze <i>nur</i>")


def test_tags_stay_around_their_words():
    document = parse_srt(CUE.format("{\\an8}A <i>red</i> house").encode())
    [segment] = document.segments
    assert segment == MarkedText("A red house", (InlineTag(0, 0, 0), InlineTag(2, 5, 1)))
    rendered = document.render([MarkedText("Ein rotes Haus", (InlineTag(0, 0, 0), InlineTag(4, 9, 1)))])
    assert rendered.decode() == CUE.format("{\\an8}Ein <i>rotes</i> Haus")


def test_comments_styles_and_settings_of_webvtt_stay():
    source = (
        "WEBVTT\n\nNOTE a note\n\nSTYLE\n::cue {}\n\nid\n00:01.000 --> 00:02.000 line:0\n<v Al>Fish &amp; &lt;chips\n"
    )
    document = parse_vtt(source.encode())
    assert [segment.text for segment in document.segments] == ["Fish & <chips"]
    rendered = document.render([to_capitals(segment) for segment in document.segments]).decode()
    assert rendered == source.replace("Fish &amp; &lt;chips", "FISH &amp; &lt;CHIPS")


def test_numbers_of_thousands_of_digits_are_no_characters():
    source = f"WEBVTT\n\n00:01.000 --> 00:02.000\na &#{'1' * 5000}; b &#228;\n"
    [segment] = parse_vtt(source.encode()).segments
    assert segment.text == "a \ufffd b ä"


def test_a_translation_contains_no_timing():
    document = parse_srt(CUE.format("Words").encode())
    assert document.render([MarkedText("a --> b")]).decode() == CUE.format("a -> b")


def test_cues_without_words_are_not_translated():
    assert parse_srt(CUE.format("42 ...").encode()).segments == []


def test_other_files_are_refused():
    with pytest.raises(UnreadableError, match="first line must be WEBVTT"):
        parse_vtt(CUE.format("text").encode())
    with pytest.raises(UnreadableError, match="no subtitles"):
        parse_srt(b"Some prose.\n")
