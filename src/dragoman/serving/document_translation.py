"""Translation of documents by the server, with progress."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from dragoman.corpus.sources import Languages
from dragoman.decoding.glossary import Glossary
from dragoman.decoding.glossary_search import TermCheck, check_terms
from dragoman.documents.document import Document, UnreadableError
from dragoman.documents.formats import parse
from dragoman.documents.marked_text import MarkedText
from dragoman.serving.ordered_tasks import run_in_order
from dragoman.serving.translation_service import ServedModel, TranslationService
from dragoman.serving.worker_thread import WorkerThread

Result = TypeVar("Result")
MAX_QUEUED_SEGMENTS = 16
"""Segments of a document that are translated at a time: enough to fill batches, and others are not delayed."""
PROGRESS_INTERVAL_S = 0.2


@dataclass(frozen=True)
class TranslatedDocument:
    content: bytes
    terms: TermCheck | None = None
    """Terms of the glossary in its texts, each once; None without a glossary."""

    @property
    def report(self) -> dict[str, Any]:
        """The terms under the name that responses have for them."""
        return {} if self.terms is None else {"glossary": asdict(self.terms)}


class DocumentTranslator:
    """Translates documents. They are parsed and written in a thread of their own."""

    def __init__(self, service: TranslationService) -> None:
        self._service = service
        self._thread = WorkerThread("documents")

    def close(self) -> None:
        self._thread.close()

    async def run(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run a function in the thread of documents."""
        return await self._thread.run(work, *arguments)

    async def parse(self, content: bytes, extension: str, languages: Languages) -> Document:
        return await self.run(parse, content, extension, languages)

    async def translate(
        self,
        model: ServedModel,
        content: bytes,
        extension: str,
        languages: Languages,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> TranslatedDocument:
        """The translated document; raises an UnreadableError if it cannot be parsed."""
        document = await self.parse(content, extension, languages)
        translations: list[MarkedText] = []
        on_progress(0, len(document.segments))
        work = (self._translate_segment(model, segment) for segment in document.segments)
        async for translation in run_in_order(work, MAX_QUEUED_SEGMENTS):
            translations.append(translation)
            on_progress(len(translations), len(document.segments))
        terms = None
        if model.glossary is not None:
            terms = await self.run(_check_segments, document.segments, translations, model.glossary)
        return TranslatedDocument(await self.run(document.render, translations), terms)

    async def stream(
        self, model: ServedModel, content: bytes, extension: str, languages: Languages
    ) -> AsyncIterator[dict[str, Any]]:
        """How many segments are done, again and again; at last the document, or the reason why there is none."""
        progress = {"done": 0, "total": 0}

        def update(done: int, total: int) -> None:
            progress.update(done=done, total=total)

        work = asyncio.ensure_future(self.translate(model, content, extension, languages, update))
        try:
            while not (await asyncio.wait([work], timeout=PROGRESS_INTERVAL_S))[0]:
                yield dict(progress)
            translated = work.result()
            yield {"file": base64.b64encode(translated.content).decode(), **translated.report}
        except UnreadableError as error:
            yield {"error": str(error)}
        finally:
            work.cancel()

    async def _translate_segment(self, model: ServedModel, segment: MarkedText) -> MarkedText:
        return (await self._service.translate_marked(model, segment))[0]


def _check_segments(
    segments: Sequence[MarkedText], translations: Sequence[MarkedText], glossary: Glossary
) -> TermCheck:
    pairs = zip(segments, translations, strict=True)
    checks = [check_terms(segment.text, translation.text, glossary) for segment, translation in pairs]
    applied = dict.fromkeys(term for check in checks for term in check.applied)
    missing = dict.fromkeys(term for check in checks for term in check.missing)
    return TermCheck(list(applied), list(missing))
