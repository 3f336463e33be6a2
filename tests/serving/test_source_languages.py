"""Source languages, as stated or detected."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.corpus.language_detection import LanguageGuess
from dragoman.serving.source_languages import SourceLanguages, TextLanguage
from dragoman.serving.translation_service import ServedModel, TranslationService

from .conftest import make_service

FRENCH = "Le professeur lit un livre très long dans le jardin."


@pytest.fixture
def service(exports: list[Path]) -> Iterator[TranslationService]:
    service = make_service([exports[0]])
    yield service
    service.close()


def find(service: TranslationService, directions: str, text: str, target: str) -> TextLanguage:
    batcher = service.models[0].batcher
    service.models = [ServedModel(pair, *pair.split(">"), batcher) for pair in directions.split()]
    [language] = asyncio.run(SourceLanguages(service).find([text], "auto", target))
    return language


def test_a_stated_language_is_not_questioned(service: TranslationService) -> None:
    languages = asyncio.run(SourceLanguages(service).find([FRENCH, "x"], "de", "en"))
    assert languages == [TextLanguage("de")] * 2


@pytest.mark.parametrize(
    ("directions", "target", "expected"),
    [
        ("de>fr en>fr", "fr", "en"),
        ("de>en", "en", "en"),
        ("es>de fr>de", "de", "es"),
        ("en>de fr>es", "es", "fr"),
        ("en>de", "zz", "zz"),
    ],
)
def test_undetected_texts_get_a_language_that_leads_to_the_target(
    service: TranslationService, directions: str, target: str, expected: str
) -> None:
    assert find(service, directions, "42", target).detected == LanguageGuess(expected, 0.0)


def test_the_likeliest_served_language_is_taken_unless_the_text_is_long_and_surely_in_another(
    service: TranslationService,
) -> None:
    assert find(service, "pt-BR>en", "Obrigado pela sua ajuda com este livro.", "en").code == "pt"
    assert find(service, "en>de", FRENCH, "de").code == "fr"
    assert find(service, "en>de", "Good day", "de").code == "en"
