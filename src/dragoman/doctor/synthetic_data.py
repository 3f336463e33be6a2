"""A synthetic data set: random tokens in sentences as long as those of a data set, or as those of news text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dragoman import __version__
from dragoman.corpus.dataset import Manifest, Split, TextCounts
from dragoman.corpus.sources import Languages

MIN_PAIRS = 20_000
LONGEST = 130
"""Tokens of the longest sentence of news text."""
FIRST_ID = 4
"""Lower ids are special tokens."""


class SyntheticPairs:
    """Pairs of random tokens. Their frequencies follow Zipf's law, as those of words do."""

    def __init__(self, vocabulary: int, lengths: Sequence[tuple[int, int]] = (), count: int = MIN_PAIRS) -> None:
        self._random = np.random.default_rng(1)
        self._vocabulary = vocabulary
        self._lengths = self._sample(lengths, count) if lengths else self._sample_news(count)

    def _sample(self, lengths: Sequence[tuple[int, int]], count: int) -> Any:
        """Lengths drawn from the given ones; the longest ones always, because they limit what fits into a batch."""
        given = np.array(lengths, np.int32)
        drawn = self._random.choice(given, max(count, 2))
        drawn[:2] = given[given.argmax(axis=0)]
        return drawn

    def _sample_news(self, count: int) -> Any:
        drawn = self._random.lognormal(3.1, 0.5, count)
        source = np.clip(drawn, 4, LONGEST).astype(np.int32)
        target = np.clip(drawn * self._random.normal(1.05, 0.1, count), 4, LONGEST).astype(np.int32)
        return np.stack([source, target], axis=1)

    def __len__(self) -> int:
        return len(self._lengths)

    def lengths(self) -> Any:
        return self._lengths

    def of_epoch(self, epoch: int, seed: int) -> None:
        """Each pair once."""

    def gather(self, pairs: Any) -> tuple[Any, Any]:
        source, target = (self._draw(int(count)) for count in self._lengths[pairs].sum(axis=0))
        return source, target

    def _draw(self, count: int) -> Any:
        words = self._vocabulary - FIRST_ID
        return (FIRST_ID - 1 + words ** self._random.random(count)).astype(np.uint32)


class SyntheticTokenizer:
    """What training needs of a tokenizer."""

    decoder_start_id = 1

    def __init__(self, vocabulary: int) -> None:
        self.padded_vocab_size = vocabulary


class SyntheticDataSet:
    """What training needs of a data set, without files."""

    languages = Languages("source", "target")

    def __init__(self, vocabulary: int, lengths: Sequence[tuple[int, int]] = (), count: int = MIN_PAIRS) -> None:
        self.tokenizer = SyntheticTokenizer(vocabulary)
        self._pairs = SyntheticPairs(vocabulary, lengths, count)
        source_tokens, target_tokens = self._pairs.lengths().sum(axis=0, dtype=np.int64).tolist()
        counts = TextCounts(len(self._pairs), source_tokens=source_tokens, target_tokens=target_tokens)
        self.manifest = Manifest(
            name="synthetic", identity="", languages=self.languages, pieces=vocabulary, token_dtype="uint32",
            splits={"train": counts, "valid": TextCounts()}, sources=[], evaluation_sources={}, files={}, settings={},
            dragoman=__version__,
        )  # fmt: skip

    def pairs(self, split: Split) -> SyntheticPairs:  # noqa: ARG002 (as of a DataSet)
        return self._pairs
