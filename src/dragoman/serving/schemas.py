"""What clients send and get, field by field: the one place that the checks and the OpenAPI page are made from."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*$", max_length=35)]
MAX_TEXTS = 64
"""Texts of one request."""


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class _Response(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class TranslateRequest(_Request):
    """LibreTranslate's request."""

    q: str | Annotated[list[str], Field(max_length=MAX_TEXTS)]
    """A text, or several."""
    source: Literal["auto"] | Language
    """Language of the text; `auto` to have it found out."""
    target: Language
    """Language of the translation."""
    format: Literal["text"] = "text"
    """Markup is not understood: send text."""
    alternatives: Annotated[int, Field(ge=0, le=16)] = 0
    """Other translations wanted, besides the best; as many as the beam is wide at most."""
    model: str | None = None
    """Name of a model, where several translate this direction."""
    api_key: str | None = None
    """Where the server asks for one; or send it as a bearer token."""


class StreamRequest(_Request):
    """A text whose sentences come back one by one."""

    q: str
    """The text."""
    source: Literal["auto"] | Language
    """Language of the text; `auto` to have it found out."""
    target: Language
    """Language of the translation."""
    alternatives: Annotated[int, Field(ge=0, le=16)] = 0
    """Other translations wanted of each sentence."""
    confidence: bool = False
    """Whether to say how sure the model is of each word."""
    model: str | None = None
    """Name of a model, where several translate this direction."""
    api_key: str | None = None
    """Where the server asks for one; or send it as a bearer token."""


class DetectRequest(_Request):
    """LibreTranslate's request."""

    q: str
    """The text."""
    api_key: str | None = None
    """Where the server asks for one; or send it as a bearer token."""


class Detected(_Response):
    language: str
    confidence: float
    """In percent, among all languages that the detector knows."""


class TranslateAnswer(_Response):
    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    """The translation, or one for each text."""
    alternatives: list[str] | list[list[str]] | None = None
    """Where they were asked for."""
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815
    """Where the source was `auto`."""


class LanguageAnswer(_Response):
    code: str
    name: str
    targets: list[str]
    """Languages that it can be translated into."""


class ModelAnswer(_Response):
    name: str
    source: str
    target: str
    beam: int
    compute_type: str


class HealthAnswer(_Response):
    status: Literal["ok"]


class ErrorAnswer(_Response):
    error: str
    """One sentence: what is wrong and what to do."""
