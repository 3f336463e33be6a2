"""The HTTP API: LibreTranslate's calls, so that its clients work here, and a few of our own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dragoman.serving import documents, language_detection
from dragoman.serving.limits import Keys, Limits
from dragoman.serving.metrics import CONTENT_TYPE, Metrics
from dragoman.serving.requests import Gatekeeper, RefusedError, read_body, read_fields
from dragoman.serving.schemas import DetectRequest, StreamRequest, TranslateRequest
from dragoman.serving.translation_service import ServedModel, Service, UnknownDirectionError

RETRY_AFTER_S = 2.0
CLOSED_BY_CLIENT = 499
"""For the metrics alone: nobody is there to read it."""
FILE_TIMEOUT_FACTOR = 10
Result = TypeVar("Result")


class Api:
    """The handlers of all calls, over one service."""

    def __init__(self, service: Service, limits: Limits, keys: Keys | None, metrics: Metrics) -> None:
        self._service = service
        self._limits = limits
        self._metrics = metrics
        self._gate = Gatekeeper(keys, limits)

    async def translate(self, request: Request) -> Response:
        asked = await read_fields(request, TranslateRequest, self._limits)
        self._gate.admit(request, asked.api_key)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        self._check_length(sum(map(len, texts)))
        # What has no letters is taken to be in the language of its company; nothing is looked at twice.
        company = "\n".join(texts)
        worded = [text if any(map(str.isalpha, text)) else company for text in texts]
        sources = {text: self._source_of(text, asked.source) for text in dict.fromkeys(worded)}
        guesses = [sources[text] for text in worded]
        models = [
            self._model(source, asked.target, asked.model, len(text))
            for text, (source, _) in zip(texts, guesses, strict=True)
        ]
        done = await _while_present(
            request,
            asyncio.gather(
                *(self._one_text(model, text, asked.alternatives) for model, text in zip(models, texts, strict=True))
            ),
        )
        detected = [guess for _, guess in guesses if guess is not None]
        several = not isinstance(asked.q, str)
        answer: dict[str, Any] = {"translatedText": _one_or_all([text for text, _ in done], several)}
        if asked.alternatives:
            answer["alternatives"] = _one_or_all([others for _, others in done], several)
        if asked.source == "auto":
            answer["detectedLanguage"] = _one_or_all(detected, several)
        return JSONResponse(answer)

    async def _one_text(self, model: ServedModel, text: str, alternatives: int) -> tuple[str, list[str]]:
        """A translation, and others: the n-th is made of the n-th best of each sentence."""
        parts = [part async for part in self._service.stream(model, text, alternatives=alternatives)]
        most = max((len(part.alternatives) for part in parts), default=0)
        ranked = ["".join([part.ranked(rank) + part.glue for part in parts]) for rank in range(most + 1)]
        return ranked[0], ranked[1:]

    async def stream(self, request: Request) -> Response:
        asked = await read_fields(request, StreamRequest, self._limits)
        self._gate.admit(request, asked.api_key)
        self._check_length(len(asked.q))
        source, guess = self._source_of(asked.q, asked.source)
        model = self._model(source, asked.target, asked.model, len(asked.q))
        head = {"model": model.name, "source": model.source, "target": model.target, "detected": guess}
        return StreamingResponse(self._lines(model, asked, head), media_type="application/x-ndjson")

    async def _lines(self, model: ServedModel, asked: StreamRequest, head: dict[str, Any]) -> AsyncIterator[str]:
        """A line of JSON about the text, one for each sentence, and one at the end."""
        started_at_s = time.perf_counter()
        yield _line(head)
        sentences = 0
        async for part in self._service.stream(
            model, asked.q, alternatives=asked.alternatives, with_confidence=asked.confidence
        ):
            sentences += bool(part.text)
            yield _line(asdict(part))
        yield _line({"done": True, "sentences": sentences, "seconds": round(time.perf_counter() - started_at_s, 4)})

    async def file(self, request: Request) -> Response:
        name, source, target = (request.query_params.get(key, "") for key in ("name", "source", "target"))
        self._gate.admit(request, None)
        form = name.rpartition(".")[2].lower()
        if form not in documents.FORMATS:
            kinds = ", ".join(f".{known}" for known in documents.FORMATS)
            raise RefusedError(400, f"The name '{name[-40:]}' does not end in {kinds}: only such files are translated.")
        content = await read_body(request, self._limits.max_file_bytes, self._limits)
        model = self._model(source, target, request.query_params.get("model"), len(content))

        async def translate(text: str) -> str:
            return await self._service.translate(model, text)

        work = documents.translate_document(content, form, source, target, translate)
        try:
            made = await _while_present(request, work)
        except documents.UnreadableError as error:
            raise RefusedError(400, str(error)) from None
        return Response(made, media_type=documents.FORMATS[form])

    async def detect(self, request: Request) -> Response:
        asked = await read_fields(request, DetectRequest, self._limits)
        self._gate.admit(request, asked.api_key)
        self._check_length(len(asked.q))
        return JSONResponse([_in_percent(guess) for guess in language_detection.detect(asked.q)])

    async def languages(self, _: Request) -> Response:
        targets: dict[str, list[str]] = {}
        for model in self._service.models:
            targets.setdefault(model.source, [])
            if model.target not in targets[model.source]:
                targets[model.source].append(model.target)
        for model in self._service.models:  # clients look up the names of targets here, too
            targets.setdefault(model.target, [])
        return JSONResponse(
            [
                {"code": code, "name": language_detection.name_of(code), "targets": found}
                for code, found in targets.items()
            ]
        )

    async def models(self, _: Request) -> Response:
        return JSONResponse(
            [
                {
                    "name": model.name,
                    "source": model.source,
                    "target": model.target,
                    "beam": model.engine.translator.options.beam,
                    "compute_type": str(model.engine.translator.runtime.compute_type),
                }
                for model in self._service.models
            ]
        )

    async def settings(self, _: Request) -> Response:
        """What the page must know."""
        return JSONResponse(
            {
                "maxCharacters": self._limits.max_characters,
                "maxFileBytes": self._limits.max_file_bytes,
                "fileFormats": list(documents.FORMATS),
                "asksForKeys": self._gate.asks_for_keys,
            }
        )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        for model in self._service.models:
            self._metrics.waiting.labels(model.name).set(model.engine.waiting)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    def timeout_s(self, path: str) -> float:
        """How long a call may take."""
        return self._limits.timeout_s * (FILE_TIMEOUT_FACTOR if path == "/file" else 1)

    def _check_length(self, characters: int) -> None:
        most = self._limits.max_characters
        if characters > most:
            raise RefusedError(413, f"The text has {characters:,} characters, more than {most:,}: send it in parts.")

    def _source_of(self, text: str, stated: str) -> tuple[str, dict[str, Any] | None]:
        """The language of a text, and how it was found out if it was."""
        if stated != "auto":
            return stated, None
        guesses = language_detection.detect(text)
        if not guesses or guesses[0].confidence < language_detection.SURE:
            raise RefusedError(400, "The language of the text cannot be told: name it as source.")
        return guesses[0].language, _in_percent(guesses[0])

    def _model(self, source: str, target: str, name: str | None, characters: int) -> ServedModel:
        """The model for so much text, if it has room for it."""
        try:
            model = self._service.find_model(source, target, name)
        except UnknownDirectionError as error:
            raise RefusedError(400, str(error)) from None
        if model.engine.waiting >= self._limits.max_waiting:
            raise RefusedError(503, "Too much is waiting already: try again in a moment.", RETRY_AFTER_S)
        self._metrics.characters.labels(model.name).inc(characters)
        return model


def _one_or_all(items: list[Any], several: bool) -> Any:
    return items if several else items[0]


def _in_percent(guess: language_detection.Guess) -> dict[str, Any]:
    return {"language": guess.language, "confidence": round(100 * guess.confidence, 2)}


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


async def _while_present(request: Request, work: Awaitable[Result]) -> Result:
    """Do the work as long as the client is there to get it."""
    doing = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_absence(request))
    try:
        await asyncio.wait((doing, watching), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise RefusedError(CLOSED_BY_CLIENT, "The client has gone.")
    finally:
        for task in (doing, watching):
            task.cancel()
        await asyncio.gather(doing, watching, return_exceptions=True)


async def _absence(request: Request) -> None:
    """Ends when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
