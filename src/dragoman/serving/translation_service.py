"""Translation of texts, independent of HTTP: models by language pair, and texts split into sentences."""

import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.alignment import AlignmentLink, TokenizedPair, compose_links
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.decoding.glossary import Glossary, GlossaryFile, Term, read_glossary
from dragoman.decoding.line_translator import (
    MAX_SEGMENT_TOKENS,
    LineSegment,
    SourceTokens,
    normalize_line,
    split_line,
    to_single_line,
)
from dragoman.decoding.sentence_splitting import Segment, split_sentences
from dragoman.documents.marked_text import MarkedText
from dragoman.documents.marked_translation import join_sentences, sentences_with_tags
from dragoman.documents.protected_sentence import ProtectedSentence
from dragoman.errors import DragomanError
from dragoman.serving.model_routes import ServedModel, UnknownDirectionError, find_route, find_routes
from dragoman.serving.ordered_tasks import run_in_order
from dragoman.serving.request_batcher import RequestBatcher
from dragoman.serving.worker_thread import WorkerThread

__all__ = ["ServedModel", "TranslatedSentence", "TranslatedWord", "TranslationService", "UnknownDirectionError"]

MAX_QUEUED_PER_TEXT = 32
"""Sentences of one text in the queue at a time, so that a long text does not delay short ones."""
SHORT_TEXT_CHARACTERS = 500
"""Shorter texts are processed in the event loop: they take less time than a change of threads."""
_WORD_START = "▁"
"""SentencePiece's mark of a piece that begins a word."""


Result = TypeVar("Result")


@dataclass(frozen=True)
class TranslatedWord:
    """A word of a translation, with the model's confidence from 0 to 1."""

    text: str
    confidence: float


@dataclass(frozen=True)
class TranslatedSentence:
    """A sentence of a text, translated."""

    source: str
    text: str
    glue: str
    """Whitespace between this sentence and the next."""
    alternatives: tuple[str, ...] = ()
    words: tuple[TranslatedWord, ...] = ()
    """Only if confidence was requested, and the text is unmodified model output."""

    def ranked(self, rank: int) -> str:
        """The translation at a rank, 0 being the best; the best one if there are fewer."""
        return self.alternatives[rank - 1] if 0 < rank <= len(self.alternatives) else self.text


@dataclass(frozen=True)
class _SentenceTranslation:
    """Translation of a sentence. The tokens are set only if the model translated the whole sentence at once."""

    text: str
    alternatives: tuple[str, ...] = ()
    source_tokens: SourceTokens = ()
    target_tokens: tuple[int, ...] = ()


class TranslationService:
    """The served models, a thread that runs them, and one that works on long texts.

    One thread runs the models, because CTranslate2 uses all cores for one batch already.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        threads: int,
        on_batch: Callable[[str, int], None],
        glossaries: Sequence[GlossaryFile] = (),
    ) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="translate")
        self._text_thread = WorkerThread("text")
        self.models: list[ServedModel] = []
        for folder in folders:
            translator = CTranslate2Translator.load(folder, threads=threads)
            assert translator.languages is not None
            name = _unique_name(folder.resolve().name, {model.name for model in self.models})
            batcher = RequestBatcher(translator, self._executor, partial(on_batch, name))
            self.models.append(ServedModel(name, translator.languages.source, translator.languages.target, batcher))
        self._glossaries: dict[tuple[str, str], Glossary] = {}
        for file in glossaries:
            self._add_glossary(file)

    def _add_glossary(self, file: GlossaryFile) -> None:
        languages = file.languages or Languages(self.models[0].source, self.models[0].target)
        try:
            model = self.find_model(languages.source, languages.target)
        except UnknownDirectionError as error:
            raise DragomanError(f"{file.path} is for no model here. {error}") from None
        self._glossaries[model.source, model.target] = read_glossary(file.path, languages)

    @property
    def routes(self) -> list[ServedModel]:
        """All models, and two in a row for directions that no model translates."""
        return find_routes(self.models)

    def find_model(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """The model for a language pair, or two in a row, with the glossary of the pair."""
        model = find_route(self.models, source, target, name)
        return replace(model, glossary=self._glossaries.get((model.source, model.target)))

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._text_thread.close()

    async def run_on_text(self, work: Callable[..., Result], text: str, *arguments: object) -> Result:
        """Call `work(text, *arguments)` without keeping the event loop from other requests."""
        if len(text) <= SHORT_TEXT_CHARACTERS:
            return work(text, *arguments)
        return await self._text_thread.run(work, text, *arguments)

    async def translate(self, model: ServedModel, text: str) -> str:
        """Translate a text, preserving its whitespace."""
        return "".join([sentence.text + sentence.glue async for sentence in self.stream(model, text)])

    async def stream(
        self, model: ServedModel, text: str, *, alternatives: int = 0, with_confidence: bool = False
    ) -> AsyncIterator[TranslatedSentence]:
        """Translate a text; yields its sentences in order, each as soon as it and those before it are ready."""
        segments = await self.run_on_text(split_sentences, text)
        work = (self._translate_segment(model, segment, alternatives, with_confidence) for segment in segments)
        # Closed at once if the reader stops early: what is in progress must not go on.
        async with aclosing(run_in_order(work, MAX_QUEUED_PER_TEXT)) as sentences:
            async for sentence in sentences:
                yield sentence

    async def translate_marked(
        self, model: ServedModel, text: MarkedText, *, alternatives: int = 0
    ) -> list[MarkedText]:
        """Translate a text with inline markup: the best translation, and alternatives of its sentences."""
        sentences = [sentence async for sentence in self.stream(model, text.text, alternatives=alternatives)]
        segments = [Segment(sentence.source, sentence.glue) for sentence in sentences]
        ranks = range(1 + max((len(sentence.alternatives) for sentence in sentences), default=0))
        with_tags = set(sentences_with_tags(text, segments))
        pairs = dict.fromkeys(
            (sentence.source, sentence.ranked(rank))
            for sentence in sentences
            if sentence.source in with_tags
            for rank in ranks
        )
        links = {pair: await self._align(model, *pair) for pair in pairs}
        return [
            await self.run_on_text(
                lambda _, rank: join_sentences(
                    text, segments, [sentence.ranked(rank) for sentence in sentences], links
                ),
                text.text,
                rank,
            )
            for rank in ranks
        ]

    async def _align(self, model: ServedModel, source: str, translation: str) -> list[AlignmentLink]:
        if model.then is not None:
            pivot = (await self._search_sentence(model, source, [])).text
            first = await self._align(replace(model, then=None), source, pivot)
            second = await self._align(model.then, pivot, translation)
            return await self.run_on_text(lambda _: compose_links(first, second), source)
        tokenizer = model.batcher.translator.tokenizer
        pair = await self.run_on_text(lambda text: TokenizedPair.encode(tokenizer, text, translation), source)
        if pair.is_too_long:
            return pair.link_in_order()
        attention = await model.batcher.attention(*pair.tokens)
        return await self.run_on_text(lambda _: pair.link(attention), source)

    async def _translate_segment(
        self, model: ServedModel, segment: Segment, alternatives: int, with_confidence: bool
    ) -> TranslatedSentence:
        translation = await self._translate_sentence(model, segment.text)
        words: tuple[TranslatedWord, ...] = ()
        if with_confidence and translation.target_tokens:
            batcher = model.last.batcher
            log_probabilities = await batcher.token_log_probabilities(
                translation.source_tokens, translation.target_tokens
            )
            words = _word_confidences(batcher.translator, translation, log_probabilities)
        return TranslatedSentence(
            segment.text, translation.text, segment.glue, translation.alternatives[:alternatives], words
        )

    async def _translate_sentence(self, model: ServedModel, sentence: str) -> _SentenceTranslation:
        """The translation of a sentence, with its protected spans."""
        protected = await self.run_on_text(ProtectedSentence, sentence)
        found: dict[str, _SentenceTranslation] = {}
        while protected.request is not None:
            if isinstance(protected.request, MarkedText):
                answer = await self.translate_marked(model, protected.request)
            else:
                text = protected.request.text
                if text not in found:
                    found[text] = await self._translate_unchecked(model, text)
                answer = [MarkedText(each) for each in (found[text].text, *found[text].alternatives)]
            await self.run_on_text(lambda _, answer: protected.answer(answer), sentence, answer)
        whole = found.get(sentence)
        if whole is not None and whole.text == protected.translation:
            return whole
        return _SentenceTranslation(protected.translation)

    async def _translate_unchecked(self, model: ServedModel, sentence: str) -> _SentenceTranslation:
        """The translation of the model, or of two models in a row, with the terms of the glossary."""
        terms = [] if model.glossary is None else await self.run_on_text(_find_terms, sentence, model.glossary)
        if model.then is not None:
            sentence = (await self._search_sentence(model, sentence, [])).text
        return await self._search_sentence(model.last, sentence, terms)

    async def _search_sentence(self, model: ServedModel, sentence: str, terms: Sequence[Term]) -> _SentenceTranslation:
        """The model's translation as it is. A sentence too long for the model is translated in pieces.

        Terms of a glossary are left to the model then.
        """
        tokenizer = model.batcher.translator.tokenizer
        pieces, sources = await self.run_on_text(_encode, sentence, tokenizer)
        if not pieces:
            return _SentenceTranslation("")
        results = [await model.batcher.search(source) for source in sources]
        if terms and len(pieces) == 1:
            results = [await model.batcher.enforce_terms(sources[0], results[0], terms)]
        if len(pieces) > 1:
            texts = (tokenizer.decode(hypotheses[0].tokens) for hypotheses in results)
            joined = "".join(text + piece.separator for text, piece in zip(texts, pieces, strict=True))
            return _SentenceTranslation(to_single_line(joined))
        [hypotheses] = results
        distinct_texts = dict.fromkeys(to_single_line(tokenizer.decode(hypothesis.tokens)) for hypothesis in hypotheses)
        best, *alternatives = distinct_texts
        return _SentenceTranslation(best, tuple(alternatives), sources[0], tuple(hypotheses[0].tokens))


def _find_terms(sentence: str, glossary: Glossary) -> list[Term]:
    return glossary.find_terms(sentence)


def _unique_name(name: str, used: Collection[str]) -> str:
    """The name, or with a number if another model has it."""
    candidates = (name if number == 1 else f"{name}-{number}" for number in range(1, len(used) + 2))
    return next(candidate for candidate in candidates if candidate not in used)


def _encode(sentence: str, tokenizer: Tokenizer) -> tuple[list[LineSegment], list[SourceTokens]]:
    """Pieces of a sentence that are short enough for the model, and their tokens."""
    pieces = split_line(normalize_line(sentence), lambda text: len(tokenizer.encode(text)), MAX_SEGMENT_TOKENS)
    return pieces, [(*tokenizer.encode(piece.text), tokenizer.eos_id) for piece in pieces]


def _word_confidences(
    translator: CTranslate2Translator, translation: _SentenceTranslation, log_probabilities: Sequence[float]
) -> tuple[TranslatedWord, ...]:
    """Words with the geometric mean of their tokens' probabilities. Empty if the words do not add up to the text."""
    tokenizer = translator.tokenizer
    groups: list[list[tuple[int, float]]] = []
    # The last log-probability, that of the end token, belongs to no word.
    for token, log_probability in zip(translation.target_tokens, log_probabilities, strict=False):
        if not groups or tokenizer.pieces[token].startswith(_WORD_START):
            groups.append([])
        groups[-1].append((token, log_probability))
    words = tuple(
        TranslatedWord(
            to_single_line(tokenizer.decode([token for token, _ in group])),
            round(math.exp(sum(log_probability for _, log_probability in group) / len(group)), 3),
        )
        for group in groups
    )
    return words if " ".join(word.text for word in words) == translation.text else ()
