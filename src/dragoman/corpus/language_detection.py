"""Language detection by py3langid, and the English names of languages."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from dragoman.corpus.language_names import language_name
from dragoman.corpus.text_normalization import limit_combining_marks

__all__ = ["AUTO_MIN_CONFIDENCE", "LanguageGuess", "detect", "is_in_another_language", "language_name"]

MIN_LETTERS = 3
"""Texts with fewer letters have no detected language."""
AUTO_MIN_CONFIDENCE = 0.5
"""Confidence required to translate a text with source `auto`."""


OTHER_LANGUAGE_LETTERS = 12
"""Shorter texts count as ones in any language: names and exclamations are the same in many."""
OTHER_LANGUAGE_PROBABILITY = 0.02
"""Probability of a language below which a text is not in it. Similar languages share the rest among them."""
OTHER_LANGUAGE_CHARACTERS = 100
"""Characters that are enough to tell; more would only take longer."""


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


def is_in_another_language(text: str, language: str) -> bool:
    """True if a text is almost certainly not in `language`. False for languages that the detector does not know."""
    text = text[:OTHER_LANGUAGE_CHARACTERS]
    identifier, code = _identifier(), language.split("-", maxsplit=1)[0].lower()
    if code not in _known_languages() or sum(map(str.isalpha, text)) < OTHER_LANGUAGE_LETTERS:
        return False
    text = limit_combining_marks(text)
    if identifier.classify(text)[0] == code:  # Faster than the ranking of all languages, and true for most texts.
        return False
    return bool(dict(identifier.rank(text))[code] < OTHER_LANGUAGE_PROBABILITY)


@cache
def _known_languages() -> frozenset[str]:
    return frozenset(_identifier().labels)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
