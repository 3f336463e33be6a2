"""An exported model at work: CTranslate2 searches, and torch is not needed.

The folder is CTranslate2's own (`model.bin`, `config.json`, `shared_vocabulary.json`), with our description and
tokenizer beside it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.line_translator import LineTranslator, Source, batches
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
EXTRA_LENGTH = 20
"""Tokens that a translation may have beyond the multiple of its source's, as in the search on torch."""
LEAST_ROOM = 32
BATCH_TOKENS = 1024


@dataclass(frozen=True)
class SearchResult:
    """One translation that CTranslate2 found."""

    tokens: list[int]
    score: float
    """Log-probability over the length penalty, as in the search on torch."""


def is_exported(folder: Path) -> bool:
    """Whether a model folder is for CTranslate2."""
    return (folder / BINARY_FILE).is_file()


def changed(options: DecodingSettings, changes: Mapping[str, Any]) -> DecodingSettings:
    """Decoding settings with some changed, and checked."""
    return settings_from_json({"decoding": {**options.model_dump(), **changes}}).decoding if changes else options


class ExportedTranslator(LineTranslator):
    """Translates lines with CTranslate2."""

    def __init__(
        self, runtime: "ctranslate2.Translator", tokenizer: Tokenizer, options: DecodingSettings, languages: Languages
    ) -> None:
        super().__init__(tokenizer, options, languages)
        self.runtime = runtime
        self._ids = {piece: token for token, piece in enumerate(tokenizer.pieces)}

    @classmethod
    def load(
        cls, folder: Path, device: str | None = None, *, at_once: int = 1, threads: int = 0, **decoding: Any
    ) -> "ExportedTranslator":
        """Read an exported folder. Without a device, a GPU is used if there is one.

        `at_once` batches are searched beside each other, each with `threads`; 0 threads leaves it to CTranslate2. Many
        batches with a thread each translate most, and one batch with many threads is there soonest.
        """
        import ctranslate2  # Here, so that machines which only train do without it.

        content = read_json(folder / DESCRIPTION_FILE)
        kind, _, index = (device or ("cuda" if ctranslate2.get_cuda_device_count() else "cpu")).partition(":")
        try:
            runtime = ctranslate2.Translator(
                str(folder), kind, device_index=int(index or 0), inter_threads=at_once, intra_threads=threads
            )
            options, languages = DecodingSettings(**content["decoding"]), Languages(**content["languages"])
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise DragomanError(f"{folder} cannot be loaded ({reason}): export the model again.") from None
        return cls(runtime, Tokenizer.load(folder / TOKENIZER_FILE), changed(options, decoding), languages)

    def search(self, sources: Iterable[Source], n_best: int) -> dict[Source, list[SearchResult]]:
        # On a CPU larger batches gain nothing, and many small ones keep all cores busy to the end.
        most = BATCH_TOKENS if self.runtime.device == "cpu" else self.options.batch_tokens
        cut = list(batches(sources, min(most, self.options.batch_tokens)))
        found = zip(cut, self.search_batches(cut, n_best), strict=True)
        return {source: said for batch, results in found for source, said in zip(batch, results, strict=True)}

    def search_batch(self, batch: Sequence[Source], n_best: int = 1) -> list[list[SearchResult]]:
        """The best translations of each source, all searched at once."""
        return next(self.search_batches([batch], n_best))

    def search_batches(self, many: Sequence[Sequence[Source]], n_best: int = 1) -> Iterator[list[list[SearchResult]]]:
        """The same for many batches, in order: all are handed in first, for whatever core is free."""
        if not 1 <= n_best <= self.options.beam:
            raise DragomanError(
                f"{n_best} translations were asked for, but decoding.beam = {self.options.beam}: "
                f"ask for 1 to {self.options.beam}, or raise decoding.beam."
            )
        under_way = [self._begin(batch) for batch in many]
        for batch, results in zip(many, under_way, strict=True):
            found = (result.result() for result in results)
            yield [
                self._ranked(result.hypotheses, result.scores, self._limit(source))[:n_best]
                for source, result in zip(batch, found, strict=True)
            ]

    def _begin(self, batch: Sequence[Source]) -> list[Any]:
        """What will be found of each source."""
        options = self.options
        results: dict[int, Any] = {}
        for room, places in self._by_room(batch).items():
            begun = self.runtime.translate_batch(
                [self._pieces(batch[place]) for place in places],
                asynchronous=True,
                beam_size=options.beam,
                # All of them, because CTranslate2 penalises length by another formula: ours then chooses.
                num_hypotheses=options.beam,
                length_penalty=options.length_penalty,
                coverage_penalty=options.coverage_penalty,
                no_repeat_ngram_size=options.no_repeat_ngram,
                max_input_length=0,
                max_decoding_length=room - 1,
                min_decoding_length=0,
                return_scores=True,
            )
            results.update(zip(places, begun, strict=True))
        return [results[place] for place in range(len(batch))]

    def _by_room(self, batch: Sequence[Source]) -> dict[int, list[int]]:
        """Places of the sources that are searched together, by the tokens that CTranslate2 may say.

        It knows one limit for a batch. A power of two that depends on the source alone makes the result independent of
        its company; and those of like length waste no padding.
        """
        groups: dict[int, list[int]] = {}
        for place, source in enumerate(batch):
            groups.setdefault(max(LEAST_ROOM, 1 << (self._limit(source) - 1).bit_length()), []).append(place)
        return groups

    def _limit(self, source: Source) -> int:
        """The most tokens, the end mark among them, that a translation may have: as in the search on torch."""
        return int(self.options.max_length_ratio * len(source)) + EXTRA_LENGTH

    def log_probabilities(self, pairs: Sequence[tuple[Source, Sequence[int]]]) -> list[list[float]]:
        """How likely the model finds each token of given translations, and last their ends."""
        pieces = self.tokenizer.pieces
        scored = self.runtime.score_batch(
            [self._pieces(source) for source, _ in pairs],
            [[pieces[token] for token in said] for _, said in pairs],
            max_input_length=0,
        )
        return [list(result.log_probs) for result in scored]

    def _pieces(self, source: Source) -> list[str]:
        """CTranslate2 adds the end mark itself."""
        pieces = self.tokenizer.pieces
        return [pieces[token] for token in source[:-1]]

    def _ranked(self, hypotheses: Sequence[Sequence[str]], scores: Sequence[float], limit: int) -> list[SearchResult]:
        """By our length penalty: ((5 + length) / 6)^alpha where CTranslate2 has length^alpha."""
        said = []
        for pieces, score in zip(hypotheses, scores, strict=True):
            length = len(pieces) + 1  # with the end mark, as both count it
            penalty = (length / ((5 + length) / 6)) ** self.options.length_penalty
            # One that did not end had more room than its limit.
            said.append(SearchResult([self._ids[piece] for piece in pieces][: limit - 1], score * penalty))
        return sorted(said, key=lambda found: -found.score)
