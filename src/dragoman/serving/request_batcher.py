"""One model behind a queue: what many clients ask for is translated together.

There is no waiting for company: while a batch is being translated the next one gathers. So a lone sentence is as fast
as the library, and under load batches grow by themselves. A client that goes away frees its place at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from dragoman.decoding.ctranslate2_translator import ExportedTranslator, SearchResult
from dragoman.decoding.line_translator import Source

BATCH_SENTENCES = 64
"""More at once makes each wait longer and gains little on a CPU."""
REMEMBERED_SENTENCES = 1000
"""Translations kept for those who ask again, as someone does who is still typing."""


@dataclass(eq=False)
class _Waiting:
    source: Source
    answer: asyncio.Future[list[SearchResult]]


class Engine:
    """Translates token sequences for many at once. Must be used within one event loop."""

    def __init__(
        self,
        translator: ExportedTranslator,
        executor: Executor,
        on_batch: Callable[[int], None],
    ) -> None:
        self.translator = translator
        self._executor = executor
        self._on_batch = on_batch
        self._queue: OrderedDict[_Waiting, None] = OrderedDict()
        self._remembered: OrderedDict[Source, list[SearchResult]] = OrderedDict()
        self._worker: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Sentences whose turn has not come."""
        return len(self._queue)

    async def find(self, source: Source) -> list[SearchResult]:
        """The best translations of a sentence, as many as the beam is wide. Cancelled, it leaves the queue."""
        if (known := self._remembered.get(source)) is not None:
            self._remembered.move_to_end(source)
            return known
        waiting = _Waiting(source, asyncio.get_running_loop().create_future())
        self._queue[waiting] = None
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            return await waiting.answer
        finally:
            self._queue.pop(waiting, None)

    async def judge(self, source: Source, said: Sequence[int]) -> list[float]:
        """How likely the model finds each token of a translation."""
        loop = asyncio.get_running_loop()
        [likely] = await loop.run_in_executor(self._executor, self.translator.log_probabilities, [(source, said)])
        return likely

    async def _work(self) -> None:
        """Batch after batch until nothing waits."""
        while self._queue:
            batch = [self._queue.popitem(last=False)[0] for _ in range(min(BATCH_SENTENCES, len(self._queue)))]
            sources = list(dict.fromkeys(waiting.source for waiting in batch))
            self._on_batch(len(sources))
            try:
                found = dict(zip(sources, await self._search(sources), strict=True))
            except Exception as error:
                for waiting in batch:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
                continue
            for waiting in batch:
                if not waiting.answer.done():  # it may have been cancelled meanwhile
                    waiting.answer.set_result(found[waiting.source])
            self._remember(found)

    async def _search(self, sources: Sequence[Source]) -> list[list[SearchResult]]:
        beam = self.translator.options.beam
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self.translator.search_batch, sources, beam
        )

    def _remember(self, found: dict[Source, list[SearchResult]]) -> None:
        self._remembered.update(found)
        while len(self._remembered) > REMEMBERED_SENTENCES:
            self._remembered.popitem(last=False)
