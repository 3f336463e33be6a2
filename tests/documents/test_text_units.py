"""Tests of the units of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.documents.text_units import find_graphemes, find_units


def parts(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a red book.", ["a", "red", "book", "."]),
        ("don't stop, it’s 1,000", ["don't", "stop", ",", "it’s", "1", ",", "000"]),
        ("日本 kana かな", ["日", "本", "kana", "か", "な"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("👩‍🔧👍🏽🇩🇪🇫🇷", ["👩‍🔧", "👍🏽", "🇩🇪", "🇫🇷"]),
        ("a \n b", ["a", "\n", "b"]),
        ("", []),
    ],
)
def test_units_are_words_and_single_characters(text: str, units: list[str]) -> None:
    assert parts(text, find_units(text)) == units


@given(st.text(max_size=30))
def test_graphemes_are_the_text_and_units_are_what_is_visible(text: str) -> None:
    assert "".join(parts(text, find_graphemes(text))) == text
    visible = "".join(text.split())
    assert "".join("".join(parts(text, find_units(text))).split()) == visible
