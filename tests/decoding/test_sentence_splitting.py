"""Splitting text into sentences, and joining it again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.sentence_splitting import MAX_SENTENCE_CHARACTERS, join_segments, split_sentences

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


@given(
    st.lists(st.sampled_from(["a", " ", "  ", "word ", ". ", "\t", "x" * 1500, " " * 1500, "日" * 900]), max_size=30)
)
def test_no_sentence_is_longer_than_the_limit(parts: list[str]) -> None:
    text = "".join(parts)
    segments = split_sentences(text)
    assert join_segments(segments) == text
    assert all(len(segment.text) <= MAX_SENTENCE_CHARACTERS for segment in segments)
    assert all(segment.text == segment.text.strip() for segment in segments)


def test_a_long_sentence_is_cut_between_words() -> None:
    text = "word " * 2000
    assert all(segment.text.split()[-1] == "word" for segment in split_sentences(text))
