"""Handlers that describe the server: languages, models, settings, health, metrics."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dragoman.corpus.language_detection import language_name
from dragoman.documents.formats import FORMATS
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import CONTENT_TYPE, Metrics
from dragoman.serving.source_languages import AUTO
from dragoman.serving.translation_service import TranslationService

FRONTEND_TIMEOUT_MS = 500


class ServerInfo:
    """Handlers of requests about the server itself. They need no API key."""

    def __init__(
        self,
        service: TranslationService,
        limits: Limits,
        metrics: Metrics,
        *,
        requires_key: bool,
        takes_suggestions: bool,
    ) -> None:
        self._service = service
        self._limits = limits
        self._metrics = metrics
        self._requires_key = requires_key
        self._takes_suggestions = takes_suggestions

    async def languages(self, _: Request) -> Response:
        """All languages with their targets. Like LibreTranslate's, these include the language itself."""
        targets: dict[str, set[str]] = {}
        for model in self._service.routes:
            targets.setdefault(model.source, {model.source}).add(model.target)
        for model in self._service.models:  # Clients look up the names of target languages here, too.
            targets.setdefault(model.target, {model.target})
        return JSONResponse(
            [
                {"code": code, "name": language_name(code), "targets": sorted(target_codes)}
                for code, target_codes in targets.items()
            ]
        )

    async def models(self, _: Request) -> Response:
        return JSONResponse(
            [
                {
                    "name": model.name,
                    "source": model.source,
                    "target": model.target,
                    "via": model.via,
                    "beam": model.batcher.translator.options.beam,
                    "compute_type": str(model.batcher.translator.runtime.compute_type),
                }
                for model in self._service.routes
            ]
        )

    async def settings(self, _: Request) -> Response:
        """Settings for pages: LibreTranslate's, and `maxFileBytes`."""
        target = self._service.models[0].target
        return JSONResponse(
            {
                "charLimit": self._limits.max_characters,
                "frontendTimeout": FRONTEND_TIMEOUT_MS,
                "apiKeys": self._requires_key,
                "keyRequired": self._requires_key,
                "suggestions": self._takes_suggestions,
                "filesTranslation": True,
                "supportedFilesFormat": [f".{extension}" for extension in FORMATS],
                "language": {
                    "source": {"code": AUTO, "name": "Auto Detect"},
                    "target": {"code": target, "name": language_name(target)},
                },
                "maxFileBytes": {extension: self._limits.max_document_bytes(extension) for extension in FORMATS},
            }
        )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        for model in self._service.models:
            self._metrics.sentences_waiting.labels(model.name).set(model.batcher.queue_length)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)
