"""Schemas of requests and responses. Validation and the OpenAPI document are both generated from them."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$", max_length=35)]
MAX_TEXTS = 64
"""Texts per request."""
MAX_ALTERNATIVES = 16
MAX_TERMS = 1000
"""Terms of the glossary of a request."""


def _to_count(value: Any) -> int:
    """A number of alternatives, from anything that `int` reads. Numbers out of range are changed to the nearest."""
    try:
        return min(max(0, int(value)), MAX_ALTERNATIVES)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("is not a number") from None


def _to_object(value: Any) -> Any:
    """An object, which forms send as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError("is not a JSON object") from None


AlternativesCount = Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES), BeforeValidator(_to_count)]
ApiKey = Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))]
Texts = Annotated[list[str], Field(max_length=MAX_TEXTS)]
Terms = Annotated[dict[str, str], Field(max_length=MAX_TERMS), BeforeValidator(_to_object)]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class _Response(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class TranslateRequest(_Request):
    """One or more texts to translate, as in LibreTranslate."""

    q: str | Texts
    """A text, or a list of texts."""
    source: Literal["auto"] | LanguageCode
    """Language of the text; `auto` detects it."""
    target: LanguageCode
    """Language of the translation."""
    format: Literal["text", "html"] = "text"
    """With `html`, only the text of the page or fragment is translated; tags stay around the right words."""
    alternatives: AlternativesCount = 0
    """Number of alternative translations, at most the beam size minus one."""
    model: str | None = None
    """Model name, if several models translate this language pair."""
    glossary: Terms = {}
    """Required translations of terms, as `{term: translation}`. They come before those of the server's glossary."""
    api_key: ApiKey = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class StreamRequest(_Request):
    """A text to translate sentence by sentence."""

    q: str
    """The text."""
    source: Literal["auto"] | LanguageCode
    """Language of the text; `auto` detects it."""
    target: LanguageCode
    """Language of the translation."""
    alternatives: AlternativesCount = 0
    """Number of alternative translations per sentence, at most the beam size minus one."""
    confidence: bool = False
    """Include the model's confidence in each word."""
    model: str | None = None
    """Model name, if several models translate this language pair."""
    glossary: Terms = {}
    """Required translations of terms, as `{term: translation}`. They come before those of the server's glossary."""
    api_key: ApiKey = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class DetectRequest(_Request):
    """A text whose language is to be detected, as in LibreTranslate."""

    q: str | Texts
    """A text, or a list of texts in one language."""
    api_key: ApiKey = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class SuggestRequest(_Request):
    """A better translation of a text, as in LibreTranslate."""

    q: str
    """The original text."""
    s: str
    """The suggested translation."""
    source: Literal["auto"] | LanguageCode
    """Language of the original text; `auto` detects it."""
    target: LanguageCode
    """Language of the suggested translation."""
    api_key: ApiKey = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class FileRequest(_Request):
    """The fields beside the file to translate, as in LibreTranslate."""

    source: Literal["auto"] | LanguageCode
    """Language of the file; `auto` detects it."""
    target: LanguageCode
    """Language of the translation."""
    model: str | None = None
    """Model name, if several models translate this language pair."""
    glossary: Terms = {}
    """Required translations of terms, as `{term: translation}`. They come before those of the server's glossary."""
    api_key: ApiKey = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class DetectedLanguage(_Response):
    language: str
    confidence: float
    """In percent, among all languages the detector knows; 0 if the language could not be detected."""


class TermResponse(_Response):
    source: str
    target: str


class GlossaryResponse(_Response):
    applied: list[TermResponse]
    """Terms of the text whose translations occur in the translation, inflected or not."""
    missing: list[TermResponse]
    """Terms of the text whose translations do not."""


class TranslateResponse(_Response):
    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    """The translation, or a list with one for each text."""
    alternatives: list[str] | list[list[str]] | None = None
    """Alternative translations, if requested."""
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815 (LibreTranslate's name)
    """Detected language, if `source` was `auto`."""
    via: str | list[str | None] | None = None
    """Language that was translated through, where no model translates directly."""
    glossary: GlossaryResponse | list[GlossaryResponse] | None = None
    """Terms of a glossary in the text, if there is a glossary."""


class LanguageResponse(_Response):
    code: str
    name: str
    targets: list[str]
    """Languages it can be translated into."""


class ModelResponse(_Response):
    name: str
    source: str
    target: str
    via: str | None
    """Language between two models in a row; their names are joined by a plus sign."""
    beam: int
    compute_type: str


class SuggestResponse(_Response):
    success: bool


class FileUrlResponse(_Response):
    translatedFileUrl: str  # noqa: N815 (LibreTranslate's name)
    """Address to download the translated file from, within half an hour."""
    glossary: GlossaryResponse | None = None
    """Terms of a glossary in the file, each once, if there is a glossary."""


class LanguageChoice(_Response):
    code: str
    name: str


class LanguageChoices(_Response):
    source: LanguageChoice
    target: LanguageChoice


class SettingsResponse(_Response):
    """Settings for pages, under LibreTranslate's names, and one of our own."""

    charLimit: int  # noqa: N815
    """Characters of text per request."""
    frontendTimeout: int  # noqa: N815
    """Milliseconds after the last key press before a page translates."""
    apiKeys: bool  # noqa: N815
    """The server knows API keys."""
    keyRequired: bool  # noqa: N815
    """Requests need an API key."""
    suggestions: bool
    """The server stores suggestions."""
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    """Extensions of files that can be translated, such as `.txt`."""
    language: LanguageChoices
    """Languages to select at first."""
    maxFileBytes: dict[str, int]  # noqa: N815


class HealthResponse(_Response):
    status: Literal["ok"]


class ErrorResponse(_Response):
    error: str
    """One sentence: the problem and its remedy."""
