"""Glossaries: terms are found in any simple form, and their translations are checked in any inflection."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.corpus.sources import Languages
from dragoman.decoding.glossary import Glossary, Term, count_forms, make_glossary, missing_terms, read_glossary
from dragoman.errors import DragomanError

EN_DE = Languages("en", "de")


def find(terms: dict[str, str], sentence: str, language: str = "en") -> list[str]:
    return [term.source for term in Glossary(terms, language).find_terms(sentence)]


def test_terms_are_found_as_words_in_any_case_and_simple_form() -> None:
    terms = {"dog": "Rüde", "fire truck": "Löschzug", "truck": "Laster", "café": "Kaffeehaus"}
    assert find(terms, "Two Dogs chase a DOG, the dog's fire trucks and a truck.") == [
        "dog", "dog", "dog", "fire truck", "truck",
    ]  # fmt: skip
    assert find(terms, "A hotdog, dogma, doggy, the fire. Trucking.") == []
    assert find(terms, "The cafe and the CAFÉS") == ["café", "café"]
    assert find({"Hund": "dog"}, "Die Hunde des Hundes", "de") == ["Hund", "Hund"]
    assert find({"kissa": "cat"}, "kissat kissa", "fi") == ["kissa"]


@pytest.mark.parametrize(
    ("text", "target", "times"),
    [
        ("Der Hund und die Hunde des Hundes.", "Hund", 3),
        ("Zwei Häuser, ein Haus", "Haus", 2),
        ("Die Katzen", "Katze", 1),
        ("mit roten Schuhen und einem rotes Kleid", "rote", 2),
        ("Der Hundehalter", "Hund", 0),
        ("Er isst Ei und Eis", "Ei", 1),
        ("am grünen Löschzug; den Löschzügen", "Löschzug", 2),
        ("der rote Löschzug", "rote Löschzug", 1),
        ("", "Hund", 0),
    ],
)
def test_inflected_forms_count_as_the_term(text: str, target: str, times: int) -> None:
    assert count_forms(text, target) == times


def test_a_term_must_occur_as_often_as_in_the_source() -> None:
    dog, cat = Term("dog", "Hund"), Term("cat", "Katze")
    assert missing_terms([dog, cat, dog], "Ein Hund und eine Katze") == [dog]
    assert missing_terms([dog, cat], "Hunde und Katzen") == []


def test_tsv_and_csv_are_read(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tRüde\nfire truck\tLöschzug\n", encoding="utf-8")
    (tmp_path / "terms.csv").write_text("de;en\nRüde;dog\nLöschzug;fire truck\n", encoding="utf-8")
    expected = {"dog": "Rüde", "fire truck": "Löschzug"}
    assert [read_glossary(tmp_path / name, EN_DE).terms for name in ("terms.tsv", "terms.csv")] == [expected] * 2


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ([("dog", "Hund"), ("dog", "Rüde")], "'dog' has two translations"),
        ([("", "Hund")], "needs a term and a translation"),
        ([("dog", " ... ")], "needs a term and a translation"),
        ([("dog " * 11, "Hund")], "more than 10 words"),
        ([("d" * 201, "Hund")], "longer than 200 characters"),
    ],
)
def test_invalid_terms_are_reported(pairs: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(DragomanError, match=problem):
        make_glossary(pairs, "en", "terms.tsv")


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=5), st.text())
def test_any_text_and_terms_are_checked_without_an_error(text: str, terms: dict[str, str], translation: str) -> None:
    try:
        glossary = make_glossary(terms.items(), "en", "request")
    except DragomanError:
        return
    found = glossary.find_terms(text)
    assert {term.source for term in found} <= {term.strip() for term in terms}
    missing = missing_terms(found, translation)
    assert len(missing) <= len(found)
    assert missing_terms(found, " . ".join(term.target for term in found)) == []
