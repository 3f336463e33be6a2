"""Many clients, one model: batches, cancellation, errors."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.decoding.ctranslate2_translator import ExportedTranslator, SearchResult
from dragoman.decoding.line_translator import Source
from dragoman.serving.request_batcher import BATCH_SENTENCES, REMEMBERED_SENTENCES, Engine

from ..models import LINES


class Gated(ExportedTranslator):
    """A real translator that waits at a gate before each batch, so that tests decide when it works."""

    gate: threading.Event
    batches: list[int]

    def search_batch(self, batch: Sequence[Source], n_best: int = 1) -> list[list[SearchResult]]:
        self.batches.append(len(batch))
        assert self.gate.wait(30)
        return super().search_batch(batch, n_best)


@pytest.fixture
def translator(exports: list[Path]) -> Gated:
    made = Gated.load(exports[0], "cpu", threads=1)
    assert isinstance(made, Gated)
    made.gate, made.batches = threading.Event(), []
    return made


def sources_of(translator: ExportedTranslator, lines: Sequence[str]) -> list[Source]:
    return [(*translator.tokenizer.encode(line), translator.tokenizer.end) for line in lines]


def engine_of(translator: ExportedTranslator) -> Engine:
    return Engine(translator, ThreadPoolExecutor(1), lambda sentences: None)


def test_what_arrives_while_one_is_translated_is_translated_together(translator: Gated) -> None:
    sources = sources_of(translator, LINES[:20])

    async def ask() -> list[list[SearchResult]]:
        engine = engine_of(translator)
        tasks = [asyncio.create_task(engine.find(sources[0]))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(engine.find(source)) for source in sources[1:]]
        await asyncio.sleep(0.01)
        assert engine.waiting == 19
        translator.gate.set()
        return await asyncio.gather(*tasks)

    found = asyncio.run(ask())
    assert translator.batches == [1, 19]
    alone = [translator.search_batch([source], 3)[0][0].tokens for source in sources]
    assert [best[0].tokens for best in found] == alone


def test_a_batch_has_a_limit_and_each_sentence_is_translated_once(translator: Gated) -> None:
    translator.gate.set()
    lines = [f"{line} {number}" for number in range(4) for line in LINES[:25]]
    sources = sources_of(translator, lines)

    async def ask() -> None:
        engine = engine_of(translator)
        await asyncio.gather(*(engine.find(source) for source in sources * 2))
        assert max(translator.batches) <= BATCH_SENTENCES
        done = sum(translator.batches)
        await asyncio.gather(*(engine.find(source) for source in sources))
        assert sum(translator.batches) == done, "they were remembered"

    asyncio.run(ask())


def test_memory_of_translations_is_bounded(translator: Gated) -> None:
    translator.gate.set()

    async def ask() -> None:
        engine = engine_of(translator)
        engine._remember({(token,): [] for token in range(3 * REMEMBERED_SENTENCES)})
        assert len(engine._remembered) == REMEMBERED_SENTENCES

    asyncio.run(ask())


def test_one_who_goes_away_frees_the_place(translator: Gated) -> None:
    sources = sources_of(translator, LINES[:3])

    async def ask() -> None:
        engine = engine_of(translator)
        first, second, third = (asyncio.create_task(engine.find(source)) for source in sources)
        await asyncio.sleep(0.01)
        fourth = asyncio.create_task(engine.find((5, 3)))
        await asyncio.sleep(0.01)
        assert engine.waiting == 1
        fourth.cancel()
        first.cancel()
        await asyncio.sleep(0.01)
        assert engine.waiting == 0
        translator.gate.set()
        assert (await second)[0].score <= 0
        assert (await third)[0].score <= 0

    asyncio.run(ask())


def test_a_batch_that_fails_fails_for_those_in_it_alone(translator: Gated) -> None:
    translator.gate.set()
    [sound] = sources_of(translator, LINES[:1])

    async def ask() -> None:
        engine = engine_of(translator)
        with pytest.raises(IndexError):
            await engine.find((10**6, 3))
        assert (await engine.find(sound))[0].tokens

    asyncio.run(ask())
