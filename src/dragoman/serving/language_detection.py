"""Which language a text is in, as far as that can honestly be said."""

from dataclasses import dataclass
from functools import cache
from typing import Any

SHORTEST = 3
"""Letters below which nothing can be said."""
SURE = 0.5
"""Confidence from which a text is translated without its language having been named."""

_NAMES = """
    ar Arabic|bg Bulgarian|bn Bengali|ca Catalan|cs Czech|cy Welsh|da Danish|de German|el Greek|en English|
    eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fr French|ga Irish|gl Galician|
    he Hebrew|hi Hindi|hr Croatian|hu Hungarian|hy Armenian|id Indonesian|is Icelandic|it Italian|ja Japanese|
    ka Georgian|kk Kazakh|ko Korean|lt Lithuanian|lv Latvian|mk Macedonian|mn Mongolian|ms Malay|mt Maltese|
    nb Norwegian|nl Dutch|nn Nynorsk|no Norwegian|pl Polish|pt Portuguese|ro Romanian|ru Russian|sk Slovak|
    sl Slovenian|sq Albanian|sr Serbian|sv Swedish|sw Swahili|ta Tamil|te Telugu|th Thai|tr Turkish|
    uk Ukrainian|ur Urdu|vi Vietnamese|zh Chinese
"""
_NAME_OF = dict(entry.strip().split(" ", 1) for entry in _NAMES.split("|"))


@dataclass(frozen=True)
class Guess:
    language: str
    confidence: float
    """From 0 to 1, among all languages that the detector knows, not only those that are served."""


def detect(text: str) -> list[Guess]:
    """The likeliest languages, best first; none where the text has hardly any letters."""
    if sum(map(str.isalpha, text)) < SHORTEST:
        return []
    ranked = _identifier().rank(text)
    return [Guess(language, round(float(share), 4)) for language, share in ranked[:3] if share >= 0.01]


def name_of(code: str) -> str:
    """A language's name in English; its code where that is all we know."""
    return _NAME_OF.get(code.partition("-")[0].lower(), code)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
