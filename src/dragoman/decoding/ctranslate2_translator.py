"""Translation with CTranslate2 exports, without torch.

The folder is CTranslate2's own (`model.bin`, `config.json`, `shared_vocabulary.json`), with our description and
tokenizer added.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.length_rules import check_n_best, max_length
from dragoman.decoding.line_translator import Attention, LineTranslator, SourceTokens, make_batches
from dragoman.errors import DragomanError
from dragoman.files import read_json
from dragoman.recipe import settings_from_json
from dragoman.settings import DecodingSettings

if TYPE_CHECKING:
    import ctranslate2

BINARY_FILE = "model.bin"
DESCRIPTION_FILE = "model.json"
TOKENIZER_FILE = "tokenizer.model"
CARD_FILE = "README.md"
MIN_DECODING_LENGTH = 32
"""Smallest limit of generated tokens; larger limits are powers of two."""
CPU_BATCH_TOKENS = 1024


@dataclass(frozen=True)
class SearchResult:
    """One translation that CTranslate2 found."""

    tokens: list[int]
    score: float
    """Log-probability over the length penalty, as in the search on torch."""


def is_ctranslate2_folder(folder: Path) -> bool:
    """True if a folder holds a model for CTranslate2."""
    return (folder / BINARY_FILE).is_file()


def override_settings(options: DecodingSettings, changes: Mapping[str, Any]) -> DecodingSettings:
    """Decoding settings with some values replaced and validated."""
    return settings_from_json({"decoding": {**options.model_dump(), **changes}}).decoding if changes else options


class CTranslate2Translator(LineTranslator):
    """Translates with CTranslate2."""

    def __init__(
        self, runtime: "ctranslate2.Translator", tokenizer: Tokenizer, options: DecodingSettings, languages: Languages
    ) -> None:
        super().__init__(tokenizer, options, languages)
        self.runtime = runtime
        self._token_ids = {piece: token for token, piece in enumerate(tokenizer.pieces)}
        self._source_prefix, self._target_prefix = (
            [tokenizer.pieces[token] for token in prefix]
            for prefix in (tokenizer.source_prefix, tokenizer.target_prefix)
        )

    @classmethod
    def load(
        cls, folder: Path, device: str | None = None, *, parallel_batches: int = 1, threads: int = 0, **decoding: Any
    ) -> "CTranslate2Translator":
        """Load an exported folder. Without a device, a GPU is used if there is one.

        `parallel_batches` are searched in parallel, each with `threads`; with 0 threads CTranslate2 decides. Many
        batches with one thread each have the highest throughput, one batch with many threads the lowest latency.
        """
        import ctranslate2  # Imported here, so that machines which only train do not need it.

        content = read_json(folder / DESCRIPTION_FILE)
        kind, _, index = (device or ("cuda" if ctranslate2.get_cuda_device_count() else "cpu")).partition(":")
        try:
            runtime = ctranslate2.Translator(
                str(folder), kind, device_index=int(index or 0), inter_threads=parallel_batches, intra_threads=threads
            )
            options, languages = DecodingSettings(**content["decoding"]), Languages(**content["languages"])
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise DragomanError(f"{folder} cannot be loaded ({reason}): export the model again.") from None
        return cls(runtime, Tokenizer.load(folder / TOKENIZER_FILE), override_settings(options, decoding), languages)

    def search(self, sources: Iterable[SourceTokens], n_best: int) -> dict[SourceTokens, list[SearchResult]]:
        batches = list(make_batches(sources, self._batch_limit))
        found = zip(batches, self.search_batches(batches, n_best), strict=True)
        return {source: ranked for batch, results in found for source, ranked in zip(batch, results, strict=True)}

    @property
    def _batch_limit(self) -> int:
        """Most tokens of a batch. On a CPU larger ones gain no speed, and many small ones keep all cores busy to the
        end."""
        tokens = self.options.batch_tokens
        return min(CPU_BATCH_TOKENS, tokens) if self.runtime.device == "cpu" else tokens

    def search_batch(self, batch: Sequence[SourceTokens], n_best: int = 1) -> list[list[SearchResult]]:
        """The best translations of each source, searched as one batch."""
        return next(self.search_batches([batch], n_best))

    def search_batches(
        self, batches: Sequence[Sequence[SourceTokens]], n_best: int = 1
    ) -> Iterator[list[list[SearchResult]]]:
        """The same for many batches, in order. All are queued first, so that no core waits."""
        check_n_best(n_best, self.options)
        queued = [self._start_search(batch) for batch in batches]
        for batch, results in zip(batches, queued, strict=True):
            found = (result.result() for result in results)
            yield [
                self._rank(result.hypotheses, result.scores, self._max_length(source))[:n_best]
                for source, result in zip(batch, found, strict=True)
            ]

    def search_from(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[SearchResult]:
        """The best translation of each source that begins with given tokens, with the score of all its tokens."""
        pieces = self.tokenizer.pieces
        limit = max(self._max_length(source) + len(prefix) for source, prefix in pairs)
        found = self.runtime.translate_batch(
            [self._pieces(source) for source, _ in pairs],
            [[*self._target_prefix, *(pieces[token] for token in prefix)] for _, prefix in pairs],
            beam_size=self.options.beam,
            length_penalty=self.options.length_penalty,
            coverage_penalty=self.options.coverage_penalty,
            max_input_length=0,
            max_decoding_length=limit - 1,
        )
        translations = [self._to_tokens(result.hypotheses[0]) for result in found]
        return self.score(list(zip((source for source, _ in pairs), translations, strict=True)))

    def score(self, pairs: Sequence[tuple[SourceTokens, list[int]]]) -> list[SearchResult]:
        """Given translations with their scores, as a search would return them."""
        return [
            SearchResult(tokens, sum(values) / ((5 + len(values)) / 6) ** self.options.length_penalty)
            for (_, tokens), values in zip(pairs, self.log_probabilities(pairs), strict=True)
        ]

    def _start_search(self, batch: Sequence[SourceTokens]) -> list[Any]:
        """A CTranslate2 future for each source."""
        options = self.options
        futures: dict[int, Any] = {}
        for limit, indexes in self._group_by_limit(batch).items():
            started = self.runtime.translate_batch(
                [self._pieces(batch[index]) for index in indexes],
                [self._target_prefix for _ in indexes] if self._target_prefix else None,
                asynchronous=True,
                beam_size=options.beam,
                # All of them: CTranslate2 has another length penalty, so they are ranked again by ours.
                num_hypotheses=options.beam,
                length_penalty=options.length_penalty,
                coverage_penalty=options.coverage_penalty,
                no_repeat_ngram_size=options.no_repeat_ngram,
                max_input_length=0,
                max_decoding_length=limit - 1,
                min_decoding_length=0,
                return_scores=True,
            )
            futures.update(zip(indexes, started, strict=True))
        return [futures[index] for index in range(len(batch))]

    def _group_by_limit(self, batch: Sequence[SourceTokens]) -> dict[int, list[int]]:
        """Indexes of the sources that are searched together, by the most tokens that CTranslate2 may generate.

        It has one limit for a batch. A power of two that depends only on the source makes the result independent of
        the other sources, and sources of similar length need little padding.
        """
        groups: dict[int, list[int]] = {}
        for index, source in enumerate(batch):
            groups.setdefault(max(MIN_DECODING_LENGTH, 1 << (self._max_length(source) - 1).bit_length()), []).append(
                index
            )
        return groups

    def _max_length(self, source: SourceTokens) -> int:
        return max_length(len(self._source_prefix) + len(source), self.options.max_length_ratio)

    def log_probabilities(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[list[float]]:
        pieces = self.tokenizer.pieces
        scored = self.runtime.score_batch(
            [self._pieces(source) for source, _ in pairs],
            [[*self._target_prefix, *(pieces[token] for token in translation)] for _, translation in pairs],
            max_batch_size=self._batch_limit,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs)[len(self._target_prefix) :] for result in scored]

    def attention(self, pairs: Sequence[tuple[SourceTokens, Sequence[int]]]) -> list[Attention]:
        pieces = self.tokenizer.pieces
        longest = max((len(translation) for _, translation in pairs), default=0)
        found = self.runtime.translate_batch(
            [self._pieces(source) for source, _ in pairs],
            target_prefix=[
                [*self._target_prefix, *(pieces[token] for token in translation)] for _, translation in pairs
            ],
            beam_size=1,
            max_batch_size=self._batch_limit,
            batch_type="tokens",
            max_input_length=0,
            max_decoding_length=max(longest, 1) + len(self._target_prefix),
            return_attention=True,
        )
        rows, columns = len(self._target_prefix), len(self._source_prefix)
        return [
            np.asarray(result.attention[0], np.float32).reshape(-1, columns + len(source) - 1)[
                rows : rows + len(translation), columns:
            ]
            for result, (source, translation) in zip(found, pairs, strict=True)
        ]

    def _pieces(self, source: SourceTokens) -> list[str]:
        """The pieces without the end token, which CTranslate2 adds itself."""
        pieces = self.tokenizer.pieces
        return [*self._source_prefix, *(pieces[token] for token in source[:-1])]

    def _to_tokens(self, pieces: Sequence[str]) -> list[int]:
        """The tokens of a hypothesis, without the prefix."""
        return [self._token_ids[piece] for piece in pieces[len(self._target_prefix) :]]

    def _rank(
        self, hypotheses: Sequence[Sequence[str]], scores: Sequence[float], max_tokens: int
    ) -> list[SearchResult]:
        """Sort by our length penalty, ((5 + length) / 6)^alpha; CTranslate2 divides by length^alpha."""
        results = []
        for pieces, score in zip(hypotheses, scores, strict=True):
            length = len(pieces) - len(self._target_prefix) + 1  # with the end token, which both count
            ratio = (length / ((5 + length) / 6)) ** self.options.length_penalty
            # A translation that did not end may be longer than the limit of its source.
            tokens = self._to_tokens(pieces)[: max_tokens - 1]
            results.append(SearchResult(tokens, score * ratio))
        return sorted(results, key=lambda result: -result.score)
