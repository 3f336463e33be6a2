"""What the server can do, apart from HTTP: models by direction, and texts sentence by sentence."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dragoman.corpus.language_codes import same_language
from dragoman.decoding.ctranslate2_translator import ExportedTranslator
from dragoman.decoding.line_translator import LONGEST_PIECE, Source, one_line, split, tidy
from dragoman.serving import protected_spans
from dragoman.serving.request_batcher import Engine
from dragoman.serving.segmentation import Segment, cut

IN_FLIGHT = 32
"""Sentences of one text that wait at a time: so a book does not keep a postcard waiting."""
_WORD_MARK = "▁"


class UnknownDirectionError(Exception):
    """No model translates this. Says what there is."""


@dataclass(frozen=True)
class ServedModel:
    """A model that is served."""

    name: str
    source: str
    target: str
    engine: Engine


@dataclass(frozen=True)
class TranslatedWord:
    """A word of a translation, and how sure the model is of it, from 0 to 1."""

    text: str
    confidence: float


@dataclass(frozen=True)
class Translated:
    """A sentence of a text, translated."""

    source: str
    text: str
    glue: str
    """What stands between it and the next sentence."""
    alternatives: tuple[str, ...] = ()
    words: tuple[TranslatedWord, ...] = ()
    """Only where they were asked for, and the translation is as the model said it."""

    def ranked(self, rank: int) -> str:
        """The translation at a rank, 0 being the best; the best where there are not so many."""
        return self.alternatives[rank - 1] if 0 < rank <= len(self.alternatives) else self.text


@dataclass(frozen=True)
class _Spoken:
    """A translated sentence with its tokens, where it was said in one piece."""

    text: str
    alternatives: tuple[str, ...] = ()
    source: Source = ()
    said: tuple[int, ...] = ()


class Service:
    """The models, and one thread that runs them: CTranslate2 uses all cores for a batch, so two would be in each
    other's way."""

    def __init__(self, folders: Sequence[Path], *, threads: int, on_batch: Callable[[str, int], None]) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="translate")
        self.models: list[ServedModel] = []
        for folder in folders:
            translator = ExportedTranslator.load(folder, threads=threads)
            assert translator.languages is not None
            name = self._free_name(folder.resolve().name)
            engine = Engine(translator, self._executor, _noting(name, on_batch))
            self.models.append(ServedModel(name, translator.languages.source, translator.languages.target, engine))

    def _free_name(self, wanted: str) -> str:
        taken = {model.name for model in self.models}
        return next(name for n in range(1, 10**6) if (name := wanted if n == 1 else f"{wanted}-{n}") not in taken)

    def find_model(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """The model of a direction, the first given if there are several and none is named.

        Regions count where they are told and known: a model for pt-BR serves those who ask for pt.
        """
        exact = [model for model in self.models if (model.source, model.target) == (source, target)]
        fitting = exact or [
            model
            for model in self.models
            if same_language(model.source, source)
            and same_language(model.target, target)
            and not same_language(source, target)
        ]
        for model in fitting:
            if name in (None, model.name):
                return model
        known = ", ".join(f"{model.source} to {model.target} ({model.name})" for model in self.models)
        asked = f"{source} to {target}" + ("" if name is None else f" ({name})")
        raise UnknownDirectionError(f"No model here translates {asked}: choose one of {known}.")

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def translate(self, model: ServedModel, text: str) -> str:
        """A whole text, its shape kept."""
        return "".join([part.text + part.glue async for part in self.stream(model, text)])

    async def stream(
        self, model: ServedModel, text: str, *, alternatives: int = 0, with_confidence: bool = False
    ) -> AsyncIterator[Translated]:
        """The sentences of a text, in order, each as soon as it and those before it are there."""
        upcoming = iter(cut(text))
        under_way: deque[asyncio.Task[Translated]] = deque()
        try:
            while True:
                while len(under_way) < IN_FLIGHT and (segment := next(upcoming, None)) is not None:
                    work = self._translate_segment(model, segment, alternatives, with_confidence)
                    under_way.append(asyncio.create_task(work))
                if not under_way:
                    return
                yield await under_way[0]
                under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _translate_segment(
        self, model: ServedModel, segment: Segment, alternatives: int, with_confidence: bool
    ) -> Translated:
        spoken = await self._translate_sentence(model, segment.text)
        words: tuple[TranslatedWord, ...] = ()
        if with_confidence and spoken.said:
            likely = await model.engine.judge(spoken.source, spoken.said)
            words = _words(model.engine.translator, spoken, likely)
        return Translated(segment.text, spoken.text, segment.glue, spoken.alternatives[:alternatives], words)

    async def _translate_sentence(self, model: ServedModel, sentence: str) -> _Spoken:
        """The best translation that keeps addresses, placeholders and numbers, made of parts if there is none."""
        if not protected_spans.has_words(sentence):
            return _Spoken(sentence)
        spoken = await self._say(model, sentence)
        lost = protected_spans.lost(sentence, spoken.text)
        if not lost:
            return spoken
        for other in spoken.alternatives:
            if not protected_spans.lost(sentence, other):
                return _Spoken(other)
        made = await self._say_around(model, sentence, lost)
        if protected_spans.lost(sentence, made):
            made = await self._say_around(
                model, sentence, {*protected_spans.verbatim(sentence), *protected_spans.numbers(sentence)}
            )
        return _Spoken(made)

    async def _say_around(self, model: ServedModel, sentence: str, kept: Collection[str]) -> str:
        """A sentence in parts, with what is to be kept put between them as it is."""
        parts = []
        for part, is_kept in protected_spans.around(sentence, kept):
            if is_kept or not protected_spans.has_words(part):
                parts.append(part)
            else:
                parts.append(protected_spans.like(part, (await self._say(model, part)).text))
        return "".join(parts)

    async def _say(self, model: ServedModel, sentence: str) -> _Spoken:
        """What the model says: of a sentence too long for it, piece by piece."""
        tokenizer = model.engine.translator.tokenizer
        pieces = split(tidy(sentence), lambda text: len(tokenizer.encode(text)), LONGEST_PIECE)
        if not pieces:
            return _Spoken("")
        sources = [(*tokenizer.encode(piece.text), tokenizer.end) for piece in pieces]
        found = [await model.engine.find(source) for source in sources]
        if len(pieces) > 1:
            texts = (tokenizer.decode(best[0].tokens) for best in found)
            joined = "".join(text + piece.glue for text, piece in zip(texts, pieces, strict=True))
            return _Spoken(one_line(joined))
        texts_in_order = dict.fromkeys(one_line(tokenizer.decode(said.tokens)) for said in found[0])
        best_text, *others = texts_in_order
        return _Spoken(best_text, tuple(others), sources[0], tuple(found[0][0].tokens))


def _noting(name: str, on_batch: Callable[[str, int], None]) -> Callable[[int], None]:
    return lambda sentences: on_batch(name, sentences)


def _words(translator: ExportedTranslator, spoken: _Spoken, likely: Sequence[float]) -> tuple[TranslatedWord, ...]:
    """Tokens gathered into words; a word is as sure as its tokens on average. None where they do not make the text."""
    tokenizer = translator.tokenizer
    groups: list[list[tuple[int, float]]] = []
    for token, value in zip(spoken.said, likely, strict=False):
        if not groups or tokenizer.pieces[token].startswith(_WORD_MARK):
            groups.append([])
        groups[-1].append((token, value))
    words = tuple(
        TranslatedWord(
            one_line(tokenizer.decode([token for token, _ in group])),
            round(math.exp(sum(value for _, value in group) / len(group)), 3),
        )
        for group in groups
    )
    return words if " ".join(word.text for word in words) == spoken.text else ()
