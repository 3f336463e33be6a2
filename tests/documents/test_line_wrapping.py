"""Lines of about the same length."""

import textwrap

from hypothesis import given
from hypothesis import strategies as st

from dragoman.documents.line_wrapping import wrap_evenly


def test_lines_are_about_equally_long():
    assert wrap_evenly("one two three four", 2) == "one two\nthree four"
    assert wrap_evenly("a verylongwordindeed b", 3) == "a\nverylongwordindeed\nb"
    assert wrap_evenly("one two", 1) == "one two"


@given(st.text("ab ", max_size=60), st.integers(1, 5))
def test_only_spaces_become_line_breaks_and_no_line_could_be_shorter(text, lines):
    wrapped = wrap_evenly(text, lines)
    assert wrapped.replace("\n", " ") == text
    assert wrapped.count("\n") < lines
    words = " ".join(text.split())
    if words == text and words:
        longest = max(map(len, wrapped.split("\n")))
        assert (
            longest == 1
            or len(textwrap.wrap(words, longest - 1, break_long_words=False)) > lines
            or longest == max(map(len, words.split()))
        )
