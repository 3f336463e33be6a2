import html

from hypothesis import given
from hypothesis import strategies as st

from dragoman.character_references import decode_references

PIECES = ["&", "#", "x", "0", "65", "8211", "110000", "99999999", "a", "amp", "lt", "nbsp", ";", " ", "é"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_references_are_decoded_as_the_standard_says(text):
    assert decode_references(text) == html.unescape(text)


def test_no_number_is_too_long():
    assert decode_references(f"a&#{'9' * 12_000};b&#x{'f' * 12_000};c&#{'0' * 12_000}65;") == "a\ufffdb\ufffdcA"
