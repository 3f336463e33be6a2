"""Handlers that translate texts, detect languages and take suggestions: LibreTranslate's endpoints, and `/stream`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from dragoman.corpus import language_detection
from dragoman.corpus.language_detection import LanguageGuess
from dragoman.decoding.glossary_search import TermCheck, check_terms
from dragoman.documents.html_document import HtmlDocument, visible_text
from dragoman.documents.marked_text import MarkedText
from dragoman.serving.admission import Admission
from dragoman.serving.disconnects import cancel_on_disconnect
from dragoman.serving.error_responses import ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.request_parsing import read_fields
from dragoman.serving.schemas import DetectRequest, StreamRequest, SuggestRequest, TranslateRequest
from dragoman.serving.source_languages import DEFAULT_LANGUAGE, SourceLanguages
from dragoman.serving.suggestions import StoreFullError, SuggestionStore
from dragoman.serving.translation_service import ServedModel, TranslationService
from dragoman.serving.worker_thread import WorkerThread

MAX_QUEUED_SEGMENTS = 16
"""Segments of a page that are translated at a time: enough to fill batches, and others are not delayed."""


class Api:
    """Handlers of requests with texts."""

    def __init__(
        self, service: TranslationService, limits: Limits, admission: Admission, suggestions: SuggestionStore | None
    ) -> None:
        self._service = service
        self._limits = limits
        self._admission = admission
        self._suggestions = suggestions
        self._source_languages = SourceLanguages(service)
        self._suggestion_thread = WorkerThread("suggestions")

    def close(self) -> None:
        self._suggestion_thread.close()

    async def translate(self, request: Request) -> Response:
        fields = await read_fields(request, TranslateRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        texts = [fields.q] if isinstance(fields.q, str) else fields.q
        self._admission.check_length(sum(map(len, texts)))
        is_html = fields.format == "html"
        visible_texts = await self._visible_texts(texts, is_html)
        languages = await self._source_languages.find(visible_texts, fields.source, fields.target)
        models = [
            self._admission.select_model(language, fields.target, fields.model, len(text), fields.glossary)
            for text, language in zip(texts, languages, strict=True)
        ]
        results = await cancel_on_disconnect(
            request,
            asyncio.gather(
                *(
                    (self._translate_html if is_html else self._translate_text)(model, text, fields.alternatives)
                    for model, text in zip(models, texts, strict=True)
                )
            ),
        )
        is_list = not isinstance(fields.q, str)
        response: dict[str, Any] = {"translatedText": _list_or_first([text for text, _ in results], is_list)}
        if fields.alternatives:
            response["alternatives"] = _list_or_first([alternatives for _, alternatives in results], is_list)
        detected = [_in_percent(language.detected) for language in languages if language.detected]
        if detected:
            response["detectedLanguage"] = _list_or_first(detected, is_list)
        if any(model and model.via for model in models):
            response["via"] = _list_or_first([model and model.via for model in models], is_list)
        if any(model and model.glossary for model in models):
            translations = await self._visible_texts([text for text, _ in results], is_html)
            checks = [
                await self._check_terms(model, text, translation)
                for model, text, translation in zip(models, visible_texts, translations, strict=True)
            ]
            response["glossary"] = _list_or_first(checks, is_list)
        return JSONResponse(response)

    async def _visible_texts(self, texts: list[str], is_html: bool) -> list[str]:
        """Texts without markup."""
        return [await self._service.run_on_text(visible_text, text) for text in texts] if is_html else texts

    async def _check_terms(self, model: ServedModel | None, text: str, translation: str) -> dict[str, Any]:
        """The terms of a text that its translation contains, and those that it lacks."""
        if model is None or model.glossary is None:
            return asdict(TermCheck([], []))
        return asdict(await self._service.run_on_text(check_terms, text, translation, model.glossary))

    async def _translate_text(self, model: ServedModel | None, text: str, alternatives: int) -> tuple[str, list[str]]:
        """The best translation, and alternatives: the n-th consists of the n-th best of each sentence."""
        if model is None:
            return text, []
        sentences = [sentence async for sentence in self._service.stream(model, text, alternatives=alternatives)]
        most = max((len(sentence.alternatives) for sentence in sentences), default=0)
        best, *others = (
            "".join([sentence.ranked(rank) + sentence.glue for sentence in sentences]) for rank in range(most + 1)
        )
        return best, others

    async def _translate_html(self, model: ServedModel | None, page: str, alternatives: int) -> tuple[str, list[str]]:
        """The same for HTML, whose segments are translated by themselves."""
        if model is None:
            return page, []
        document = await self._service.run_on_text(HtmlDocument, page)
        slots = asyncio.Semaphore(MAX_QUEUED_SEGMENTS)

        async def translate(segment: MarkedText) -> list[MarkedText]:
            async with slots:
                return await self._service.translate_marked(model, segment, alternatives=alternatives)

        segments = await asyncio.gather(*map(translate, document.segments))
        ranks = range(max(map(len, segments), default=1))
        best, *others = [
            await self._service.run_on_text(
                lambda _, rank: document.render([ranked[min(rank, len(ranked) - 1)] for ranked in segments]), page, rank
            )
            for rank in ranks
        ]
        return best, others

    async def stream(self, request: Request) -> Response:
        fields = await read_fields(request, StreamRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        self._admission.check_length(len(fields.q))
        [language] = await self._source_languages.find([fields.q], fields.source, fields.target)
        model = self._admission.select_model(language, fields.target, fields.model, len(fields.q), fields.glossary)
        if model is None:
            name = language_detection.language_name(language.code)
            raise ApiError(400, f"No model translates {name} to {fields.target}: choose other languages.")
        detected = _in_percent(language.detected) if language.detected else None
        header = {
            **{"model": model.name, "source": model.source, "target": model.target, "via": model.via},
            "detected": detected,
        }
        return StreamingResponse(self._stream_lines(model, fields, header), media_type="application/x-ndjson")

    async def _stream_lines(
        self, model: ServedModel, fields: StreamRequest, header: dict[str, Any]
    ) -> AsyncIterator[str]:
        """JSON lines: a header, one line per sentence, and a final line."""
        started_at_s = time.perf_counter()
        yield _json_line(header)
        sentences, translation = 0, ""
        async for sentence in self._service.stream(
            model, fields.q, alternatives=fields.alternatives, with_confidence=fields.confidence
        ):
            sentences += bool(sentence.text)
            translation += sentence.text + sentence.glue
            yield _json_line(asdict(sentence))
        elapsed_s = round(time.perf_counter() - started_at_s, 4)
        end: dict[str, Any] = {"done": True, "sentences": sentences, "seconds": elapsed_s}
        if model.glossary is not None:
            end["glossary"] = await self._check_terms(model, fields.q, translation)
        yield _json_line(end)

    async def detect(self, request: Request) -> Response:
        fields = await read_fields(request, DetectRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        text = fields.q if isinstance(fields.q, str) else "\n".join(fields.q)
        self._admission.check_length(len(text))
        guesses = await self._service.run_on_text(language_detection.detect, text)
        return JSONResponse([_in_percent(guess) for guess in guesses or [LanguageGuess(DEFAULT_LANGUAGE, 0.0)]])

    async def suggest(self, request: Request) -> Response:
        if self._suggestions is None:
            raise ApiError(403, "Suggestions are disabled on this server.")
        self._admission.check_origin(request)
        fields = await read_fields(request, SuggestRequest, self._limits)
        self._admission.check_access(request, fields.api_key)
        self._admission.check_length(len(fields.q) + len(fields.s))
        [language] = await self._source_languages.find([fields.q], fields.source, fields.target)
        model = self._admission.select_model(language, fields.target, None, 0)
        if model is None:
            raise ApiError(400, f"{fields.source} is not supported as a source language for {fields.target}.")
        try:
            await self._suggestion_thread.run(self._suggestions.add, model.source, model.target, fields.q, fields.s)
        except StoreFullError as error:
            raise ApiError(503, str(error)) from None
        return JSONResponse({"success": True})


def _list_or_first(items: list[Any], is_list: bool) -> Any:
    return items if is_list else items[0]


def _in_percent(guess: LanguageGuess) -> dict[str, Any]:
    return {"language": guess.language, "confidence": round(100 * guess.confidence, 2)}


def _json_line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
