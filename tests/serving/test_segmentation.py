"""Sentences are found, and what stands between them is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serving.segmentation import cut, join

ALPHABET = "aZ é1.!?…。 \t\n\r\u2028\"'«(日"


@given(st.text(ALPHABET, max_size=60) | st.text(max_size=60))
def test_the_pieces_joined_are_the_text(text: str) -> None:
    segments = cut(text)
    assert join(segments) == text
    for segment in segments:
        assert segment.text == segment.text.strip()
        assert not set(segment.text) & set("\n\r\u2028\u2029")
        assert not segment.glue.strip()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four…", ["One.", "Two!", "Three?", "Four…"]),
        ("Dr. Smith met J. Doe. He left.", ["Dr. Smith met J. Doe.", "He left."]),
        ("Am 3. Mai kam er. Es war 2020. Gut.", ["Am 3. Mai kam er.", "Es war 2020.", "Gut."]),
        ("E.g. this one, i.e. the first. Yes.", ["E.g. this one, i.e. the first.", "Yes."]),
        ('"Really?" she said. "Yes." He left.', ['"Really?" she said.', '"Yes."', "He left."]),
        ("Wait... what? Ok", ["Wait... what?", "Ok"]),
        ("Version 1.2.3 costs 4.50. Buy it", ["Version 1.2.3 costs 4.50.", "Buy it"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("no end", ["no end"]),
    ],
)
def test_sentences_end_where_people_would_end_them(text: str, sentences: list[str]) -> None:
    assert [segment.text for segment in cut(text)] == sentences


def test_a_line_break_ends_a_sentence_and_paragraphs_stay() -> None:
    segments = cut("  first\nsecond. Third\r\n\r\n\tfourth\n")
    assert [(segment.text, segment.glue) for segment in segments] == [
        ("", "  "), ("first", "\n"), ("second.", " "), ("Third", "\r\n\r\n\t"), ("fourth", "\n"), ("", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["a", ".", " ", "{", "<a", "1,", "a.", "\n", "%(", "a@", "http://", '" ', ". ", "?!"])
def test_long_runs_of_anything_take_no_more_than_their_share_of_time(unit: str) -> None:
    """In quadratic time, none of these would end within the time limit of a test."""
    from dragoman.serving import protected_spans

    text = unit * (500_000 // len(unit))
    assert join(cut(text)) == text
    assert not protected_spans.lost(text, text)
    assert "".join(part for part, _ in protected_spans.around(text, [unit])) == text
