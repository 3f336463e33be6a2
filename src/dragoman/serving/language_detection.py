"""Language detection, and the English names of languages."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from dragoman.corpus.cleaning import limit_combining_marks
from dragoman.corpus.language_names import language_name

__all__ = ["AUTO_MIN_CONFIDENCE", "LanguageGuess", "detect", "language_name"]

MIN_LETTERS = 3
"""Texts with fewer letters have no detected language."""
AUTO_MIN_CONFIDENCE = 0.5
"""Confidence required to translate a text with source `auto`."""


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


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
