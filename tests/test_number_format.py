import pytest

from dragoman.number_format import count, percent, size, span


def test_counts_have_thousands_separators():
    assert count(12345.4) == "12,345"


def test_shares_become_whole_percentages():
    assert percent(0.864) == "86 %"


@pytest.mark.parametrize(("number", "text"), [(999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e15, "3000.0 TB")])
def test_sizes_have_decimal_units(number, text):
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.25, "4.2 s"), (59, "59 s"), (185, "3 min 05 s"), (7260, "2 h 01 min")]
)
def test_durations_have_two_units(seconds, text):
    assert span(seconds) == text
