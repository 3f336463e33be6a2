"""Schemas of requests and responses. Validation and the OpenAPI document are both generated from them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LanguageCode = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$", max_length=35)]
MAX_TEXTS = 64
"""Texts per request."""


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class _Response(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class TranslateRequest(_Request):
    """One or more texts to translate, as in LibreTranslate."""

    q: str | Annotated[list[str], Field(max_length=MAX_TEXTS)]
    """A text, or a list of texts."""
    source: Literal["auto"] | LanguageCode
    """Language of the text; `auto` detects it."""
    target: LanguageCode
    """Language of the translation."""
    format: Literal["text"] = "text"
    """Only plain text is supported, not HTML."""
    alternatives: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of alternative translations, at most the beam size minus one."""
    model: str | None = None
    """Model name, if several models translate this language pair."""
    api_key: str | None = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class StreamRequest(_Request):
    """A text to translate sentence by sentence."""

    q: str
    """The text."""
    source: Literal["auto"] | LanguageCode
    """Language of the text; `auto` detects it."""
    target: LanguageCode
    """Language of the translation."""
    alternatives: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of alternative translations per sentence, at most the beam size minus one."""
    confidence: bool = False
    """Include the model's confidence in each word."""
    model: str | None = None
    """Model name, if several models translate this language pair."""
    api_key: str | None = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class DetectRequest(_Request):
    """A text whose language is to be detected, as in LibreTranslate."""

    q: str
    """The text."""
    api_key: str | None = None
    """API key, if the server requires one. It can also be sent as a bearer token."""


class DetectedLanguage(_Response):
    language: str
    confidence: float
    """In percent, among all languages the detector knows."""


class TranslateResponse(_Response):
    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    """The translation, or a list with one for each text."""
    alternatives: list[str] | list[list[str]] | None = None
    """Alternative translations, if requested."""
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815 (LibreTranslate's name)
    """Detected language, if `source` was `auto`."""


class LanguageResponse(_Response):
    code: str
    name: str
    targets: list[str]
    """Languages it can be translated into."""


class ModelResponse(_Response):
    name: str
    source: str
    target: str
    beam: int
    compute_type: str


class HealthResponse(_Response):
    status: Literal["ok"]


class ErrorResponse(_Response):
    error: str
    """One sentence: the problem and its remedy."""
