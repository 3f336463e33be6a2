"""Batches, cancellation, caching and errors of concurrent requests."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.decoding.ctranslate2_translator import CTranslate2Translator, SearchResult
from dragoman.decoding.line_translator import SourceTokens
from dragoman.serving.request_batcher import CACHED_SENTENCES, MAX_BATCH_SENTENCES, RequestBatcher

from ..models import LINES


class BlockingTranslator(CTranslate2Translator):
    """A real translator that blocks before each batch until the test releases it."""

    released: threading.Event
    batches: list[int]

    def search_batch(self, batch: Sequence[SourceTokens], n_best: int = 1) -> list[list[SearchResult]]:
        self.batches.append(len(batch))
        assert self.released.wait(30)
        return super().search_batch(batch, n_best)


@pytest.fixture
def translator(exports: list[Path]) -> BlockingTranslator:
    made = BlockingTranslator.load(exports[0], "cpu", threads=1)
    assert isinstance(made, BlockingTranslator)
    made.released, made.batches = threading.Event(), []
    return made


def sources_of(translator: CTranslate2Translator, lines: Sequence[str]) -> list[SourceTokens]:
    return [(*translator.tokenizer.encode(line), translator.tokenizer.eos_id) for line in lines]


def make_batcher(translator: CTranslate2Translator) -> RequestBatcher:
    return RequestBatcher(translator, ThreadPoolExecutor(1), lambda sentences: None)


def test_sentences_that_arrive_during_a_batch_form_the_next_one(translator: BlockingTranslator) -> None:
    sources = sources_of(translator, LINES[:20])

    async def ask() -> list[list[SearchResult]]:
        batcher = make_batcher(translator)
        tasks = [asyncio.create_task(batcher.search(sources[0]))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(batcher.search(source)) for source in sources[1:]]
        await asyncio.sleep(0.01)
        assert batcher.queue_length == 19
        translator.released.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(ask())
    assert translator.batches == [1, 19]
    alone = [translator.search_batch([source], 3)[0][0].tokens for source in sources]
    assert [best[0].tokens for best in found] == alone


def test_batches_are_limited_and_each_sentence_is_translated_once(translator: BlockingTranslator) -> None:
    translator.released.set()
    lines = [f"{line} {number}" for number in range(4) for line in LINES[:25]]
    sources = sources_of(translator, lines)

    async def ask() -> None:
        batcher = make_batcher(translator)
        await asyncio.gather(*(batcher.search(source) for source in sources * 2))
        assert max(translator.batches) <= MAX_BATCH_SENTENCES
        done = sum(translator.batches)
        await asyncio.gather(*(batcher.search(source) for source in sources))
        assert sum(translator.batches) == done, "they were cached"

    asyncio.run(ask())


def test_the_cache_is_bounded(translator: BlockingTranslator) -> None:
    translator.released.set()

    async def ask() -> None:
        batcher = make_batcher(translator)
        batcher._add_to_cache({(token,): [] for token in range(3 * CACHED_SENTENCES)})
        assert len(batcher._cache) == CACHED_SENTENCES

    asyncio.run(ask())


def test_a_cancelled_search_leaves_the_queue(translator: BlockingTranslator) -> None:
    sources = sources_of(translator, LINES[:3])

    async def ask() -> None:
        batcher = make_batcher(translator)
        first, second, third = (asyncio.create_task(batcher.search(source)) for source in sources)
        await asyncio.sleep(0.01)
        fourth = asyncio.create_task(batcher.search((5, 3)))
        await asyncio.sleep(0.01)
        assert batcher.queue_length == 1
        fourth.cancel()
        first.cancel()
        await asyncio.sleep(0.01)
        assert batcher.queue_length == 0
        translator.released.set()
        assert (await second)[0].score <= 0
        assert (await third)[0].score <= 0

    asyncio.run(ask())


def test_an_error_affects_only_the_sentences_of_its_batch(translator: BlockingTranslator) -> None:
    translator.released.set()
    [valid] = sources_of(translator, LINES[:1])

    async def ask() -> None:
        batcher = make_batcher(translator)
        with pytest.raises(IndexError):
            await batcher.search((10**6, 3))
        assert (await batcher.search(valid))[0].tokens

    asyncio.run(ask())
