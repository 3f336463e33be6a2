"""Language detection, and the English names of languages."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from dragoman.corpus.cleaning import limit_combining_marks

MIN_LETTERS = 3
"""Texts with fewer letters have no detected language."""
AUTO_MIN_CONFIDENCE = 0.5
"""Confidence required to translate a text with source `auto`."""

_NAMES = """
    ar Arabic|bg Bulgarian|bn Bengali|ca Catalan|cs Czech|cy Welsh|da Danish|de German|el Greek|en English|
    eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fr French|ga Irish|gl Galician|
    he Hebrew|hi Hindi|hr Croatian|hu Hungarian|hy Armenian|id Indonesian|is Icelandic|it Italian|ja Japanese|
    ka Georgian|kk Kazakh|ko Korean|lt Lithuanian|lv Latvian|mk Macedonian|mn Mongolian|ms Malay|mt Maltese|
    nb Norwegian|nl Dutch|nn Nynorsk|no Norwegian|pl Polish|pt Portuguese|ro Romanian|ru Russian|sk Slovak|
    sl Slovenian|sq Albanian|sr Serbian|sv Swedish|sw Swahili|ta Tamil|te Telugu|th Thai|tr Turkish|
    uk Ukrainian|ur Urdu|vi Vietnamese|zh Chinese
"""
_NAMES_BY_CODE = dict(entry.strip().split(" ", 1) for entry in _NAMES.split("|"))


@dataclass(frozen=True)
class LanguageGuess:
    language: str
    confidence: float
    """From 0 to 1, among all languages the detector knows, not only those that are served."""


def detect(text: str) -> list[LanguageGuess]:
    """The most likely languages, best first. Empty if the text has fewer than `MIN_LETTERS` letters."""
    if sum(map(str.isalpha, text)) < MIN_LETTERS:
        return []
    ranked = _identifier().rank(limit_combining_marks(text))
    return [
        LanguageGuess(language, round(float(probability), 4))
        for language, probability in ranked[:3]
        if probability >= 0.01
    ]


def language_name(code: str) -> str:
    """English name of a language, or its code if the name is unknown."""
    return _NAMES_BY_CODE.get(code.partition("-")[0].lower(), code)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
