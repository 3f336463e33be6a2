"""Addresses, placeholders and numbers that a translation may not lose."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serving.protected_spans import around, like, lost, numbers, verbatim


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
def test_what_must_stay_letter_by_letter(text: str, found: list[str]) -> None:
    assert verbatim(text) == found


def test_numbers_may_change_their_separators_but_not_their_digits() -> None:
    assert numbers("1,000.5 and 3 at 10:30, not http://x.y/55") == ["10005", "3", "1030"]
    assert not lost("It costs 1,000.50 euros.", "Es kostet 1.000,50 Euro.")
    assert lost("It costs 1,000.50 euros.", "Es kostet 1.000 Euro.") == {"100050"}
    assert not lost("a dozen", "12")


def test_a_lost_or_doubled_placeholder_is_noticed() -> None:
    assert not lost("Hi {name}", "Hallo {name}")
    assert lost("Hi {name}", "Hallo {Name}") == {"{name}", "{Name}"}
    assert lost("Hi {name}", "Hallo {name} {name}") == {"{name}"}


@given(st.text("a1 .,{}%s<>/:@x\n", max_size=80))
def test_a_text_is_its_parts(text: str) -> None:
    parts = list(around(text, [*verbatim(text), *numbers(text)]))
    assert "".join(part for part, _ in parts) == text
    kept = [part for part, is_kept in parts if is_kept]
    assert Counter(verbatim(text)) <= Counter(kept)
    assert Counter(numbers(text)) <= Counter(re.sub(r"\D", "", part) for part in kept)
    assert not any(numbers(part) for part, is_kept in parts if not is_kept)


def test_a_placeholder_before_a_digit_is_one() -> None:
    assert verbatim("%s1 and %d_") == ["%s", "%d"]
    assert verbatim("5 %des") == []


def test_a_text_is_cut_only_where_something_was_lost() -> None:
    assert list(around("Pay 17 to {name}, 3 times", ["17"])) == [
        ("Pay ", False), ("17", True), (" to {name}, 3 times", False),
    ]  # fmt: skip


def test_a_part_keeps_its_surroundings_and_gains_no_full_stop() -> None:
    assert like(" pay now ", "zahle jetzt.") == " zahle jetzt "
    assert like(" at last.", "endlich.") == " endlich."
