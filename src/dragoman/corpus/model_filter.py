"""Filtering of pairs by the scores that models give them.

Without a threshold in the settings, one is found from mismatched pairs: sources with the targets of other pairs of
similar length. Pairs that score no better than nearly all of those are dropped.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.corpus.block_tasks import Mask, PreparationJob, TextPairs, load_hashes, load_pairs
from dragoman.corpus.cleaning import RuleCount
from dragoman.corpus.deduplication import random_keys
from dragoman.files import replacing
from dragoman.progress_callback import Progress
from dragoman.settings import RuleName

MISMATCHED_PAIRS = 2000
MISMATCHED_BELOW = 0.95
"""Share of the mismatched pairs whose score is below the threshold."""
LOWEST_SCORE = -1000.0
_RANDOM_STREAM = 3

Scores = npt.NDArray[np.float32]


class PairScorer(Protocol):
    """Scores pairs by models. Passed in by the caller: models are a later stage."""

    @property
    def rule(self) -> RuleName: ...

    @property
    def identity(self) -> str:
        """Describes the models, to recognise a finished data set."""

    def score(self, pairs: TextPairs) -> Scores:
        """The higher, the better."""


def drop_low_scores(
    job: PreparationJob, keep: Sequence[Mask], scorer: PairScorer, progress: Progress
) -> tuple[list[RuleCount], float]:
    """Take the pairs with low scores out of `keep`; return their counts in each block, and the threshold."""
    given = job.settings.cleaning.min_score
    min_score = _find_threshold(job, keep, scorer) if given is None else given
    counts = []
    for block, mask in enumerate(keep):
        pairs, positions, scores = load_pairs(job, block), np.flatnonzero(mask), _scores(job, block, mask, scorer)
        counts.append(RuleCount())
        for position in positions[scores < min_score].tolist():
            mask[position] = False
            counts[-1].add(*pairs[position])
        progress("Scoring pairs", block + 1, len(keep))
    return counts, min_score


def _scores(job: PreparationJob, block: int, keep: Mask, scorer: PairScorer) -> Scores:
    """The scores of the kept pairs of a block, from its file if an earlier run has written it."""
    path = job.scored(block)
    if not path.exists():
        pairs = load_pairs(job, block)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, scorer.score([pairs[position] for position in np.flatnonzero(keep)]))
    scores: Scores = np.load(path)
    return scores


def _find_threshold(job: PreparationJob, keep: Sequence[Mask], scorer: PairScorer) -> float:
    """The score that nearly all mismatched pairs are below."""
    mismatched = mismatch(_sample(job, keep))
    if not mismatched:
        return LOWEST_SCORE
    return round(float(np.quantile(scorer.score(mismatched), MISMATCHED_BELOW)), 4)


def mismatch(pairs: TextPairs) -> TextPairs:
    """Each source with the target of the next pair by the length of the target, where they differ."""
    ordered = sorted(pairs, key=lambda pair: len(pair[1]))
    following = ordered[1:] + ordered[:1]
    return [(source, other) for (source, target), (_, other) in zip(ordered, following, strict=True) if target != other]


def _sample(job: PreparationJob, keep: Sequence[Mask]) -> TextPairs:
    """Pairs chosen by the hashes of their texts, in random order."""
    share = MISMATCHED_PAIRS / max(1, sum(int(mask.sum()) for mask in keep))

    def chosen() -> Iterator[tuple[float, tuple[str, str]]]:
        for block, mask in enumerate(keep):
            keys = random_keys(load_hashes(job, block), [job.settings.corpus.seed, _RANDOM_STREAM])
            positions = np.flatnonzero(mask & (keys < share))
            pairs = load_pairs(job, block) if len(positions) else []
            yield from ((float(keys[position]), pairs[position]) for position in positions)

    return [pair for _, pair in sorted(chosen())]
