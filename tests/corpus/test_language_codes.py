"""Language codes, and codes in file names."""

import pytest

from dragoman.corpus.language_codes import codes_that_differ, direction_in, find_language, same_language


def test_codes_match_regardless_of_case_and_region() -> None:
    assert same_language("en-US", "EN")
    assert not same_language("en", "de")
    assert find_language("de", ["fr", "de-AT", "DE"], "en") == "DE"
    assert find_language("de", ["fr", "de_AT"], "en") == "de_AT"
    assert find_language("de", ["de_score_of_it!"], "en") is None
    assert find_language("pt-BR", ["pt-PT"], "pt-PT") is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.src", "a.tgt"),
        ("a.en", "b.de"),
        ("a.en", "a.en"),
        ("part.v1", "part.v2"),
        ("x.raw", "x.tok"),
        ("a.en", "a.xx"),
    ],
)
def test_other_suffixes_are_not_languages(first: str, second: str) -> None:
    assert codes_that_differ(first, second) is None


def test_a_direction_is_found_in_a_file_name() -> None:
    assert direction_in("wmt16-en-de.tsv") == ("en", "de")
    assert direction_in("my-deu_eng.tsv") == ("deu", "eng")
    assert direction_in("train.raw-tok.tsv") is None
    assert direction_in("europarl.tsv") is None
