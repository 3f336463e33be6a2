"""Batching of concurrent requests: sentences of many clients are translated together.

While one batch is being translated, the sentences that arrive form the next one. No sentence waits for a batch to fill,
so a single sentence is as fast as with the library, and batches grow with the load. A sentence whose client disconnects
leaves the queue at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, SearchResult
from dragoman.decoding.line_translator import Attention, SourceTokens

MAX_BATCH_SENTENCES = 64
"""Larger batches add latency, and on a CPU hardly any throughput."""
CACHED_SENTENCES = 1000
"""Translations kept in memory: the page sends a text again whenever it changes."""


@dataclass(eq=False)
class _QueuedSentence:
    source: SourceTokens
    result: asyncio.Future[list[SearchResult]]


class RequestBatcher:
    """Queue, batches and cache of one model. Must be used within one event loop."""

    def __init__(
        self,
        translator: CTranslate2Translator,
        executor: Executor,
        on_batch: Callable[[int], None],
    ) -> None:
        self.translator = translator
        self._executor = executor
        self._on_batch = on_batch
        self._queue: OrderedDict[_QueuedSentence, None] = OrderedDict()
        self._cache: OrderedDict[SourceTokens, list[SearchResult]] = OrderedDict()
        self._batch_loop: asyncio.Task[None] | None = None

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    async def search(self, source: SourceTokens) -> list[SearchResult]:
        """The best translations of a sentence, as many as the beam size. Cancelling removes it from the queue."""
        if (cached := self._cache.get(source)) is not None:
            self._cache.move_to_end(source)
            return cached
        queued = _QueuedSentence(source, asyncio.get_running_loop().create_future())
        self._queue[queued] = None
        if self._batch_loop is None or self._batch_loop.done():
            self._batch_loop = asyncio.create_task(self._translate_queue())
        try:
            return await queued.result
        finally:
            self._queue.pop(queued, None)

    async def token_log_probabilities(self, source: SourceTokens, target: Sequence[int]) -> list[float]:
        """Log-probability of each token of a translation."""
        loop = asyncio.get_running_loop()
        [scores] = await loop.run_in_executor(self._executor, self.translator.log_probabilities, [(source, target)])
        return scores

    async def attention(self, source: SourceTokens, target: Sequence[int]) -> Attention:
        """Cross-attention of a translation."""
        loop = asyncio.get_running_loop()
        [weights] = await loop.run_in_executor(self._executor, self.translator.attention, [(source, target)])
        return weights

    async def _translate_queue(self) -> None:
        """Translate batch after batch until the queue is empty."""
        while self._queue:
            batch = [self._queue.popitem(last=False)[0] for _ in range(min(MAX_BATCH_SENTENCES, len(self._queue)))]
            sources = list(dict.fromkeys(queued.source for queued in batch))
            self._on_batch(len(sources))
            try:
                results = dict(zip(sources, await self._search_batch(sources), strict=True))
            except Exception as error:
                for queued in batch:
                    if not queued.result.done():
                        queued.result.set_exception(error)
                continue
            for queued in batch:
                if not queued.result.done():  # It may have been cancelled in the meantime.
                    queued.result.set_result(results[queued.source])
            self._add_to_cache(results)

    async def _search_batch(self, sources: Sequence[SourceTokens]) -> list[list[SearchResult]]:
        beam = self.translator.options.beam
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, self.translator.search_batch, sources, beam
        )

    def _add_to_cache(self, results: dict[SourceTokens, list[SearchResult]]) -> None:
        self._cache.update(results)
        while len(self._cache) > CACHED_SENTENCES:
            self._cache.popitem(last=False)
