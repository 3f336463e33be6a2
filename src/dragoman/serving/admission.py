"""Admission of requests: access, length, and a model with room in its queue."""

from collections.abc import Collection, Mapping

from starlette.requests import Request

from dragoman.corpus.language_codes import same_language
from dragoman.errors import DragomanError
from dragoman.serving.access_control import AccessControl
from dragoman.serving.api_keys import ApiKeys
from dragoman.serving.error_responses import RETRY_AFTER_S, ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.source_languages import TextLanguage, served_languages
from dragoman.serving.translation_service import ServedModel, TranslationService, UnknownDirectionError

ANY_ORIGIN = "*"


class Admission:
    """Decides whether a request may proceed, and by which model. Refusals are ApiErrors."""

    def __init__(
        self,
        service: TranslationService,
        limits: Limits,
        keys: ApiKeys | None,
        metrics: Metrics,
        origins: Collection[str] = (),
    ) -> None:
        self._service = service
        self._origins = origins
        self._limits = limits
        self._metrics = metrics
        self._access = AccessControl(keys, limits)

    def check_access(self, request: Request, key: str | None) -> None:
        self._access.check(request, key)

    def check_origin(self, request: Request) -> None:
        """Refuse what pages of other origins send. They cannot read answers, but could change what is stored."""
        origin = request.headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == request.headers.get("host")
        if not (is_own or origin in self._origins or ANY_ORIGIN in self._origins):
            raise ApiError(403, "This server takes no suggestions from other web pages: see --cors.")

    def check_length(self, characters: int) -> None:
        limit = self._limits.max_characters
        if characters > limit:
            raise ApiError(
                400,
                f"Invalid request: request ({characters:,}) exceeds text limit ({limit:,}): send the text in parts.",
            )

    def select_model(
        self,
        language: TextLanguage,
        target: str,
        name: str | None,
        characters: int,
        terms: Mapping[str, str] | None = None,
    ) -> ServedModel | None:
        """Find the model for a text, with the terms of the request, check that its queue has room, and count the
        characters.

        None means that the text stays as it is: it is in the target language already, or in a language that was
        detected, but that no model translates.
        """
        try:
            model = self._service.find_model(language.code, target, name)
        except UnknownDirectionError as error:
            if self._stays_unchanged(language, target):
                return None
            raise ApiError(400, str(error)) from None
        if terms:
            try:
                model = model.with_terms(terms)
            except DragomanError as error:
                raise ApiError(400, f"Invalid request: {error}") from None
        if model.batcher.queue_length >= self._limits.max_waiting:
            raise ApiError(503, "The queue is full: try again in a moment.", RETRY_AFTER_S)
        self._metrics.characters.labels(model.name).inc(characters)
        return model

    def _stays_unchanged(self, language: TextLanguage, target: str) -> bool:
        if same_language(language.code, target):
            return any(same_language(code, target) for code in served_languages(self._service))
        is_served_target = any(same_language(model.target, target) for model in self._service.models)
        return language.detected is not None and is_served_target
