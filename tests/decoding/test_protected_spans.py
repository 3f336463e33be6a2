"""URLs, placeholders and numbers that a translation must preserve."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.protected_spans import changed_spans, find_numbers, find_verbatim, fit_to_source, split_at_spans


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See https://a.b/c?d=1.", ["https://a.b/c?d=1"]),
        ("(www.example.org/x) or me@example.co.uk!", ["www.example.org/x", "me@example.co.uk"]),
        ("{name} has {{count}} of ${total}", ["{name}", "{{count}}", "${total}"]),
        ("%s and %1$d or %(left)s", ["%s", "%1$d", "%(left)s"]),
        ("<b>bold</b> &amp; 100% sure", ["<b>", "</b>", "&amp;"]),
        ("5 < 6 and { } and %", []),
    ],
)  # fmt: skip
def test_verbatim_spans_are_found(text: str, found: list[str]) -> None:
    assert find_verbatim(text) == found


def test_numbers_may_change_their_separators_but_not_their_digits() -> None:
    assert find_numbers("1,000.5 and 3 at 10:30, not http://x.y/55") == ["10005", "3", "1030"]
    assert not changed_spans("It costs 1,000.50 euros.", "Es kostet 1.000,50 Euro.")
    assert changed_spans("It costs 1,000.50 euros.", "Es kostet 1.000 Euro.") == {"100050"}
    assert not changed_spans("a dozen", "12")


def test_a_missing_or_repeated_placeholder_is_detected() -> None:
    assert not changed_spans("Hi {name}", "Hallo {name}")
    assert changed_spans("Hi {name}", "Hallo {Name}") == {"{name}", "{Name}"}
    assert changed_spans("Hi {name}", "Hallo {name} {name}") == {"{name}"}


@given(st.text("a1 .,{}%s<>/:@x\n", max_size=80))
def test_joined_parts_are_the_original_text_and_protected_parts_cover_all_spans(text: str) -> None:
    parts = list(split_at_spans(text, [*find_verbatim(text), *find_numbers(text)]))
    assert "".join(part for part, _ in parts) == text
    protected = [part for part, is_protected in parts if is_protected]
    assert Counter(find_verbatim(text)) <= Counter(protected)
    assert Counter(find_numbers(text)) <= Counter(re.sub(r"\D", "", part) for part in protected)
    assert not any(find_numbers(part) for part, is_protected in parts if not is_protected)


def test_a_placeholder_may_precede_a_digit_but_not_a_letter() -> None:
    assert find_verbatim("%s1 and %d_") == ["%s", "%d"]
    assert find_verbatim("5 %des") == []


def test_text_is_split_only_at_the_given_spans() -> None:
    assert list(split_at_spans("Pay 17 to {name}, 3 times", ["17"])) == [
        ("Pay ", False), ("17", True), (" to {name}, 3 times", False),
    ]  # fmt: skip


def test_a_translated_part_has_the_whitespace_of_its_source_and_no_extra_full_stop() -> None:
    assert fit_to_source("zahle jetzt.", " pay now ") == " zahle jetzt "
    assert fit_to_source("endlich.", " at last.") == " endlich."
