"""Splitting text into sentences, and joining it again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serving.sentence_splitting import join_segments, split_sentences

ALPHABET = "aZ é1.!?…。 \t\n\r\u2028\"'«(日"


@given(st.text(ALPHABET, max_size=60) | st.text(max_size=60))
def test_joined_segments_are_the_original_text(text: str) -> None:
    segments = split_sentences(text)
    assert join_segments(segments) == text
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
def test_text_is_split_at_sentence_ends(text: str, sentences: list[str]) -> None:
    assert [segment.text for segment in split_sentences(text)] == sentences


def test_a_line_break_ends_a_sentence_and_whitespace_is_preserved() -> None:
    segments = split_sentences("  first\nsecond. Third\r\n\r\n\tfourth\n")
    assert [(segment.text, segment.glue) for segment in segments] == [
        ("", "  "), ("first", "\n"), ("second.", " "), ("Third", "\r\n\r\n\t"), ("fourth", "\n"), ("", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("unit", ["a", ".", " ", "{", "<a", "1,", "a.", "\n", "%(", "a@", "http://", '" ', ". ", "?!"])
def test_long_runs_of_one_character_take_linear_time(unit: str) -> None:
    """In quadratic time, each of these would exceed the time limit of a test."""
    from dragoman.serving import protected_spans

    text = unit * (500_000 // len(unit))
    assert join_segments(split_sentences(text)) == text
    assert not protected_spans.changed_spans(text, text)
    assert "".join(part for part, _ in protected_spans.split_at_spans(text, [unit])) == text
