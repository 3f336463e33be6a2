"""The page that compares two systems sentence by sentence."""

from dragoman.decoding import scoring
from dragoman.decoding.comparison_page import MAX_SENTENCES, as_html, sentence_differences

SOURCES = ["a house", "a tree", "a dog & a cat", "a bird"]
REFERENCES = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Vogel"]
WORSE = ["ein Haus", "der Traum", "ein Hund", "ein <b>Vogel"]
BETTER = ["ein Haus", "ein Baum", "ein Hund & eine Katze", "ein Fogel"]


def page_of(baseline: list[str], system: list[str]) -> str:
    found = sentence_differences(SOURCES, REFERENCES, baseline, system)
    return as_html(["old", "new"], scoring.compare(baseline, system, REFERENCES), found, len(SOURCES))


def test_only_differences_are_listed_the_largest_first() -> None:
    found = sentence_differences(SOURCES, REFERENCES, WORSE, BETTER)
    assert {item.line for item in found} == {2, 3, 4}
    assert [abs(item.gain) for item in found] == sorted((abs(item.gain) for item in found), reverse=True)
    assert found[0].gain > 0
    swapped = sentence_differences(None, REFERENCES, BETTER, WORSE)
    assert [item.gain for item in swapped] == [-item.gain for item in found]
    assert swapped[0].source is None


def test_the_page_highlights_words_and_escapes_markup() -> None:
    page = page_of(WORSE, BETTER)
    assert "<mark>der Traum</mark>" in page
    assert "<mark>&amp; eine Katze</mark>" in page
    assert "ein <mark>&lt;b&gt;Vogel</mark>" in page
    assert "<b>" not in page
    assert "Of 4 sentences, 3 differ" in page
    assert "<script" not in page


def test_the_page_shows_a_limited_number_of_sentences() -> None:
    many = MAX_SENTENCES + 50
    found = sentence_differences(None, ["x y"] * many, ["x"] * many, ["y"] * many)
    comparison = scoring.compare(["x"] * many, ["y"] * many, ["x y"] * many, resamples=10)
    assert as_html(["old", "new"], comparison, found, many).count("<article>") == MAX_SENTENCES
