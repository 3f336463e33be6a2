"""Handlers of the HTTP API: LibreTranslate's endpoints, so that its clients work here, and a few more."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dragoman.corpus.sources import Languages
from dragoman.documents.document import UnreadableError
from dragoman.documents.formats import FORMATS, extension_of
from dragoman.serving import language_detection
from dragoman.serving.access_control import AccessControl
from dragoman.serving.api_keys import ApiKeys
from dragoman.serving.document_translation import DocumentTranslator
from dragoman.serving.error_responses import RETRY_AFTER_S, ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import CONTENT_TYPE, Metrics
from dragoman.serving.request_parsing import read_body, read_fields
from dragoman.serving.schemas import DetectRequest, StreamRequest, TranslateRequest
from dragoman.serving.translation_service import ServedModel, TranslationService, UnknownDirectionError

CLIENT_CLOSED_REQUEST = 499
"""Appears in the metrics only: the client has disconnected."""
FILE_TIMEOUT_FACTOR = 10
JSON_LINES = "application/x-ndjson"
Result = TypeVar("Result")


class Api:
    """Handlers of all endpoints."""

    def __init__(self, service: TranslationService, limits: Limits, keys: ApiKeys | None, metrics: Metrics) -> None:
        self._service = service
        self._limits = limits
        self._metrics = metrics
        self._access = AccessControl(keys, limits)
        self._documents = DocumentTranslator(service)

    def close(self) -> None:
        self._documents.close()

    async def translate(self, request: Request) -> Response:
        fields = await read_fields(request, TranslateRequest, self._limits)
        self._access.check(request, fields.api_key)
        texts = [fields.q] if isinstance(fields.q, str) else fields.q
        self._check_length(sum(map(len, texts)))
        sources = await self._source_languages(texts, fields.source)
        models = [
            self._select_model(source, fields.target, fields.model, len(text))
            for text, (source, _) in zip(texts, sources, strict=True)
        ]
        results = await _cancel_on_disconnect(
            request,
            asyncio.gather(
                *(
                    self._translate_text(model, text, fields.alternatives)
                    for model, text in zip(models, texts, strict=True)
                )
            ),
        )
        is_list = not isinstance(fields.q, str)
        response: dict[str, Any] = {"translatedText": _list_or_first([text for text, _ in results], is_list)}
        if fields.alternatives:
            response["alternatives"] = _list_or_first([alternatives for _, alternatives in results], is_list)
        if fields.source == "auto":
            response["detectedLanguage"] = _list_or_first([detected for _, detected in sources], is_list)
        return JSONResponse(response)

    async def _translate_text(self, model: ServedModel, text: str, alternatives: int) -> tuple[str, list[str]]:
        """The best translation, and alternatives: the n-th consists of the n-th best of each sentence."""
        sentences = [sentence async for sentence in self._service.stream(model, text, alternatives=alternatives)]
        most = max((len(sentence.alternatives) for sentence in sentences), default=0)
        best, *others = (
            "".join([sentence.ranked(rank) + sentence.glue for sentence in sentences]) for rank in range(most + 1)
        )
        return best, others

    async def stream(self, request: Request) -> Response:
        fields = await read_fields(request, StreamRequest, self._limits)
        self._access.check(request, fields.api_key)
        self._check_length(len(fields.q))
        source, detected = await self._source_language(fields.q, fields.source)
        model = self._select_model(source, fields.target, fields.model, len(fields.q))
        header = {"model": model.name, "source": model.source, "target": model.target, "detected": detected}
        return StreamingResponse(self._stream_lines(model, fields, header), media_type=JSON_LINES)

    async def _stream_lines(
        self, model: ServedModel, fields: StreamRequest, header: dict[str, Any]
    ) -> AsyncIterator[str]:
        """JSON lines: a header, one line per sentence, and a final line."""
        started_at_s = time.perf_counter()
        yield _json_line(header)
        sentences = 0
        async for sentence in self._service.stream(
            model, fields.q, alternatives=fields.alternatives, with_confidence=fields.confidence
        ):
            sentences += bool(sentence.text)
            yield _json_line(asdict(sentence))
        elapsed_s = round(time.perf_counter() - started_at_s, 4)
        yield _json_line({"done": True, "sentences": sentences, "seconds": elapsed_s})

    async def file(self, request: Request) -> Response:
        """Translate a file. A client that accepts JSON lines gets progress, and at last the file in base64."""
        name, source, target = (request.query_params.get(key, "") for key in ("name", "source", "target"))
        self._access.check(request, None)
        try:
            extension = extension_of(name)
            content = await read_body(request, self._limits.max_document_bytes(extension), self._limits)
            model = self._select_model(source, target, request.query_params.get("model"), len(content))
            document = (model, content, extension, Languages(source, target))
            if JSON_LINES in request.headers.get("accept", ""):
                return StreamingResponse(_json_lines(self._documents.stream(*document)), media_type=JSON_LINES)
            translated = await _cancel_on_disconnect(request, self._documents.translate(*document))
        except UnreadableError as error:
            raise ApiError(400, str(error)) from None
        return Response(translated, media_type=FORMATS[extension].media_type)

    async def detect(self, request: Request) -> Response:
        fields = await read_fields(request, DetectRequest, self._limits)
        self._access.check(request, fields.api_key)
        self._check_length(len(fields.q))
        guesses = await self._service.run_on_text(language_detection.detect, fields.q)
        return JSONResponse([_in_percent(guess) for guess in guesses])

    async def languages(self, _: Request) -> Response:
        targets: dict[str, list[str]] = {}
        for model in self._service.models:
            targets.setdefault(model.source, [])
            if model.target not in targets[model.source]:
                targets[model.source].append(model.target)
        for model in self._service.models:  # Clients look up the names of target languages here, too.
            targets.setdefault(model.target, [])
        return JSONResponse(
            [
                {"code": code, "name": language_detection.language_name(code), "targets": target_codes}
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
                    "beam": model.batcher.translator.options.beam,
                    "compute_type": str(model.batcher.translator.runtime.compute_type),
                }
                for model in self._service.models
            ]
        )

    async def settings(self, _: Request) -> Response:
        """Settings that the translate page needs."""
        return JSONResponse(
            {
                "maxCharacters": self._limits.max_characters,
                "maxFileBytes": {extension: self._limits.max_document_bytes(extension) for extension in FORMATS},
                "fileFormats": list(FORMATS),
                "asksForKeys": self._access.requires_key,
            }
        )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        for model in self._service.models:
            self._metrics.sentences_waiting.labels(model.name).set(model.batcher.queue_length)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    def timeout_s(self, path: str) -> float:
        return self._limits.timeout_s * (FILE_TIMEOUT_FACTOR if path == "/file" else 1)

    def _check_length(self, characters: int) -> None:
        limit = self._limits.max_characters
        if characters > limit:
            raise ApiError(
                413, f"The text has {characters:,} characters, but the limit is {limit:,}: send it in parts."
            )

    async def _source_languages(self, texts: list[str], stated: str) -> list[tuple[str, dict[str, Any] | None]]:
        """Source language of each text. Texts without letters get the language of all texts together."""
        combined = "\n".join(texts)
        samples = [text if any(map(str.isalpha, text)) else combined for text in texts]
        languages = {sample: await self._source_language(sample, stated) for sample in dict.fromkeys(samples)}
        return [languages[sample] for sample in samples]

    async def _source_language(self, text: str, stated: str) -> tuple[str, dict[str, Any] | None]:
        """Source language of a text, and the detection result if the stated language is `auto`."""
        if stated != "auto":
            return stated, None
        guesses = await self._service.run_on_text(language_detection.detect, text)
        if not guesses or guesses[0].confidence < language_detection.AUTO_MIN_CONFIDENCE:
            raise ApiError(400, "The language of the text cannot be detected: set source to its code.")
        return guesses[0].language, _in_percent(guesses[0])

    def _select_model(self, source: str, target: str, name: str | None, characters: int) -> ServedModel:
        """Find the model for a text, check that its queue has room, and count the characters."""
        try:
            model = self._service.find_model(source, target, name)
        except UnknownDirectionError as error:
            raise ApiError(400, str(error)) from None
        if model.batcher.queue_length >= self._limits.max_waiting:
            raise ApiError(503, "The queue is full: try again in a moment.", RETRY_AFTER_S)
        self._metrics.characters.labels(model.name).inc(characters)
        return model


def _list_or_first(items: list[Any], is_list: bool) -> Any:
    return items if is_list else items[0]


def _in_percent(guess: language_detection.LanguageGuess) -> dict[str, Any]:
    return {"language": guess.language, "confidence": round(100 * guess.confidence, 2)}


def _json_line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


async def _json_lines(items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    async for item in items:
        yield _json_line(item)


async def _cancel_on_disconnect(request: Request, work: Awaitable[Result]) -> Result:
    """Await the work; cancel it if the client disconnects first."""
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((working, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ApiError(CLIENT_CLOSED_REQUEST, "The client has disconnected.")
    finally:
        for task in (working, disconnected):
            task.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
