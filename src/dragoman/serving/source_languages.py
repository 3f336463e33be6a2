"""Source languages of texts: as the request states them, or detected."""

from dataclasses import dataclass

from dragoman.corpus import language_detection
from dragoman.corpus.language_codes import same_language
from dragoman.corpus.language_detection import LanguageGuess
from dragoman.serving.translation_service import TranslationService

AUTO = "auto"
DEFAULT_LANGUAGE = "en"
"""Language of texts whose language cannot be detected, as in LibreTranslate, if a model translates it."""
FOREIGN_MIN_CONFIDENCE = 0.9
FOREIGN_MIN_LETTERS = 20
"""A text counts as one in a language that is not served only if it is long enough and the detector is sure."""


@dataclass(frozen=True)
class TextLanguage:
    """Language of a text."""

    code: str
    detected: LanguageGuess | None = None
    """Set if the language was detected. The confidence is 0 if it could not be."""


class SourceLanguages:
    """Finds the source languages of the texts of a request."""

    def __init__(self, service: TranslationService) -> None:
        self._service = service

    async def find(self, texts: list[str], stated: str, target: str) -> list[TextLanguage]:
        """The language of each text. With `auto`, undetected ones get the language of all texts together."""
        if stated != AUTO:
            return [TextLanguage(stated)] * len(texts)
        guesses = {text: await self._detect(text) for text in dict.fromkeys(texts)}
        if None in guesses.values():
            others = (await self._detect("\n".join(texts)) if len(texts) > 1 else None) or self._default(target)
            guesses = {text: guess or others for text, guess in guesses.items()}
        return [TextLanguage(guess.language, guess) for text in texts if (guess := guesses[text])]

    async def _detect(self, text: str) -> LanguageGuess | None:
        """The most likely language that is served, or another one if there is no doubt. None if undetected."""
        guesses = await self._service.run_on_text(language_detection.detect, text)
        is_sure = bool(guesses) and guesses[0].confidence >= FOREIGN_MIN_CONFIDENCE
        if is_sure and sum(map(str.isalpha, text)) >= FOREIGN_MIN_LETTERS:
            return guesses[0]
        return next((guess for guess in guesses if self._is_served(guess.language)), None)

    def _is_served(self, language: str) -> bool:
        return any(same_language(language, code) for code in served_languages(self._service))

    def _default(self, target: str) -> LanguageGuess:
        """A language from which the target can be reached, with no confidence."""
        sources = [model.source for model in self._service.models if same_language(model.target, target)]
        candidates = [target, *sources]
        found = next((code for code in candidates if same_language(code, DEFAULT_LANGUAGE)), [*sources, target][0])
        return LanguageGuess(found, 0.0)


def served_languages(service: TranslationService) -> set[str]:
    """Languages that the models translate from or into."""
    return {code for model in service.models for code in (model.source, model.target)}
