"""Text in, text out: a model with its tokenizer, for lines of any content and length.

As many lines come out as went in, each of them one line: a line without words comes out empty, and one that is too long
for the model is translated piece by piece.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from dragoman.config import Decoding, settings_from_json
from dragoman.corpus.cleaning import fold_space, without_control_characters
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.search import Hypothesis, Marks, search
from dragoman.errors import DragomanError
from dragoman.model.packing import pack_sentences
from dragoman.model.store import MODEL_FILE, load_model
from dragoman.model.transformer import Transformer
from dragoman.rundir import RunDir

LONGEST_PIECE = 250
"""Tokens of source that are translated at once: models have hardly seen longer sentences, and lose track in them."""
LOOK_AHEAD = 1024
"""Lines that a stream reads before it gives the first translation: enough to sort by length."""
GPU_BATCH_TOKENS = 16384
"""Source tokens that a GPU translates at once, at least: smaller batches leave it idle."""
BEST_FIRST = ("averaged", "best-bleu", "best-loss", "last")
"""Checkpoints of a run in the order in which one would translate with them."""

_SURROGATES = re.compile("[\ud800-\udfff]")
# All that some program or other takes for the end of a line, and the other controls with it.
_LINE_BREAKERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Where a long line may be cut, from the best places to the worst.
_CUTS = (
    re.compile("[.!?…]+[\"'»”’)\\]]*\\s+|[。！？]+[」』）”]*"),
    re.compile("[,;:–—]+\\s+|[、，；：]+"),
    re.compile("\\s+"),
)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    text: str
    score: float
    """Log-probability over the length penalty; of a line in several pieces, their mean."""


@dataclass(frozen=True)
class Translation:
    """What was found for a line."""

    text: str
    score: float
    alternatives: tuple[Candidate, ...] = ()
    """The next best that read differently, best first."""


@dataclass(frozen=True)
class Piece:
    """Part of a line that is translated at once."""

    text: str
    glue: str
    """What stood between this piece and the next."""


class Translator:
    """A model that translates text. Make one with `Translator.load`, or of a model in training."""

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, options: Decoding, languages: Languages | None = None
    ) -> None:
        self.model, self.tokenizer, self.options, self.languages = model, tokenizer, options, languages
        self._marks = marks_of(tokenizer, model.architecture.vocabulary)

    @classmethod
    def load(cls, path: Path | str, device: torch.device | str | None = None, **decoding: Any) -> "Translator":
        """Read a run (its best checkpoint is taken), a checkpoint or a model folder.

        Without a device, a GPU is used if there is one. `decoding` changes settings such as `beam=8`.
        """
        stored = load_model(find_model(Path(path)), device or ("cuda" if torch.cuda.is_available() else "cpu"))
        description = stored.description
        options = description.decoding
        if decoding:
            options = settings_from_json({"decoding": {**options.model_dump(), **decoding}}).decoding
        return cls(stored.model, description.tokenizer, options, description.languages)

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line."""
        return [translation.text for translation in self.translate_scored(lines)]

    def translate_scored(self, lines: Sequence[str], n_best: int = 1) -> list[Translation]:
        """Translations with scores, and up to `n_best - 1` alternatives each."""
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines: put the text in brackets, as in translate([text]).")
        pieces = [split(tidy(line), self._count, LONGEST_PIECE) for line in lines]
        sources = [[(*self.tokenizer.encode(piece.text), self.tokenizer.end) for piece in line] for line in pieces]
        found = self._search({source for line in sources for source in line}, n_best)
        return [
            self._join(line, [found[source] for source in line_sources])
            for line, line_sources in zip(pieces, sources, strict=True)
        ]

    def translate_stream(
        self, lines: Iterable[str], n_best: int = 1, look_ahead: int = LOOK_AHEAD
    ) -> Iterator[Translation]:
        """Translates while it reads, in order: never more than `look_ahead` lines are held."""
        remaining = iter(lines)
        while block := list(islice(remaining, look_ahead)):
            yield from self.translate_scored(block, n_best)

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def _search(self, sources: Iterable[tuple[int, ...]], n_best: int) -> dict[tuple[int, ...], list[Hypothesis]]:
        """Each different source once, those of like length together."""
        found: dict[tuple[int, ...], list[Hypothesis]] = {}
        on_gpu = self.model.embedding.weight.is_cuda
        most = max(self.options.batch_tokens, GPU_BATCH_TOKENS) if on_gpu else self.options.batch_tokens
        for batch in batches(sources, most):
            with self._precision():
                results = search(self.model, pack_sentences(batch), self.options, self._marks, n_best)
            found.update(zip(batch, results, strict=True))
        return found

    def _precision(self) -> AbstractContextManager[object]:
        device = self.model.embedding.weight.device
        if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return nullcontext()

    def _join(self, pieces: Sequence[Piece], found: Sequence[Sequence[Hypothesis]]) -> Translation:
        """The n-th best of a line in several pieces is made of the n-th best of each."""
        if not pieces:
            return Translation("", 0.0)
        candidates: dict[str, Candidate] = {}
        for rank in range(max(map(len, found))):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found]
            texts = [self.tokenizer.decode(hypothesis.tokens) for hypothesis in chosen]
            joined = one_line("".join(text + piece.glue for text, piece in zip(texts, pieces, strict=True)))
            score = sum(hypothesis.score for hypothesis in chosen) / len(chosen)
            candidates.setdefault(joined, Candidate(joined, score))
        best, *others = candidates.values()
        return Translation(best.text, best.score, tuple(others))


def find_model(path: Path) -> Path:
    """The folder that holds the model: `path` itself, or the best checkpoint of the run that it is."""
    places = [path, *(folder / name for folder in (RunDir(path).checkpoints, path) for name in BEST_FIRST)]
    for place in places:
        if (place / MODEL_FILE).exists():
            return place
    if not path.exists():
        raise DragomanError(f"There is no model {path}: check the path.")
    raise DragomanError(
        f"There is no model in {path}: give a run that has saved a checkpoint, or a folder with a {MODEL_FILE}."
    )


def marks_of(tokenizer: Tokenizer, vocabulary: int) -> Marks:
    """What a search must know of a tokenizer whose model has `vocabulary` rows."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    unsayable = [
        token
        for token in range(tokenizer.size)
        if processor.is_control(token) or processor.is_unknown(token) or processor.is_unused(token)
    ]
    forbidden = {*unsayable, *range(tokenizer.size, vocabulary)} - {tokenizer.end}
    return Marks(tokenizer.start, tokenizer.end, tuple(sorted(forbidden)))


def tidy(line: str) -> str:
    """A line as the model's training text was: one line, single spaces, no control characters."""
    return fold_space(without_control_characters(fold_space(_SURROGATES.sub("\ufffd", line))))


def one_line(text: str) -> str:
    """Text that no program takes for two lines. Models can spell any byte, line ends among them."""
    return _LINE_BREAKERS.sub(" ", text).strip()


def split(text: str, count: Callable[[str], int], limit: int) -> list[Piece]:
    """Pieces of about `limit` tokens at most, cut at sentence ends, else at commas, else at spaces, else anywhere.

    Nothing is left out: the pieces with their glue are the text again. Text without tokens has no pieces.
    """
    parts = _cut(text, count, limit, 0)
    return [Piece(part.rstrip(), " " if part != part.rstrip() else "") for part, size in parts if size]


def _cut(text: str, count: Callable[[str], int], limit: int, level: int) -> list[tuple[str, int]]:
    """Parts with their token counts."""
    size = count(text)
    if size <= limit or len(text) <= 1:
        return [(text, size)]
    if level < len(_CUTS):
        ends = [match.end() for match in _CUTS[level].finditer(text)]
    else:
        width = len(text) // math.ceil(size / limit)
        ends = list(range(max(width, 1), len(text), max(width, 1)))
    bounds = [0, *(end for end in ends if end < len(text)), len(text)]
    parts: list[tuple[str, int]] = []
    for begin, end in pairwise(bounds):
        finer = _cut(text[begin:end], count, limit, min(level + 1, len(_CUTS)))
        for part, part_size in finer:
            if parts and parts[-1][1] + part_size <= limit:
                parts[-1] = (parts[-1][0] + part, parts[-1][1] + part_size)
            else:
                parts.append((part, part_size))
    return parts


def batches(sources: Iterable[tuple[int, ...]], batch_tokens: int) -> Iterator[list[tuple[int, ...]]]:
    """Batches of at most `batch_tokens`, padding counted, or one source. The longest come first: if memory does not
    suffice, that shows at once."""
    batch: list[tuple[int, ...]] = []
    for source in sorted(sources, key=lambda source: (-len(source), source)):
        if batch and (len(batch) + 1) * len(batch[0]) > batch_tokens:
            yield batch
            batch = []
        batch.append(source)
    if batch:
        yield batch
