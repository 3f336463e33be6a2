"""Filtering of pairs by the scores that models give them.

Without a threshold in the settings, one is found from mismatched pairs: sources with the targets of other pairs of
similar length. It divides them from the real pairs with few errors.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dragoman.corpus.block_tasks import Mask, PreparationJob, TextPairs, load_hashes, load_pairs
from dragoman.corpus.cleaning import RuleCount
from dragoman.corpus.deduplication import random_keys
from dragoman.files import replacing
from dragoman.progress_callback import Progress
from dragoman.settings import RuleName

MISMATCHED_PAIRS = 1000
COST_OF_LOSS = 2.0
"""Cost of losing a share of the real pairs, against that of keeping the same share of the mismatched ones."""
LOWEST_SCORE = -1000.0
SCORE_DIGITS = 4
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
        """The higher, the better. A score may depend on the other pairs."""


def drop_low_scores(
    job: PreparationJob, keep: Sequence[Mask], scorer: PairScorer, progress: Progress
) -> tuple[list[RuleCount], float]:
    """Take the pairs with low scores out of `keep`; return their counts in each block, and the threshold."""
    for block, mask in enumerate(keep):
        _score_block(job, block, mask, scorer)
        progress("Scoring pairs", block + 1, len(keep))
    given = job.settings.cleaning.min_score
    min_score = _find_threshold(job, keep, scorer) if given is None else given
    counts = []
    for block, mask in enumerate(keep):
        pairs = load_pairs(job, block)
        counts.append(RuleCount())
        for position in np.flatnonzero(mask)[np.load(job.scored(block)) < min_score].tolist():
            mask[position] = False
            counts[-1].add(*pairs[position])
    return counts, min_score


def _score_block(job: PreparationJob, block: int, keep: Mask, scorer: PairScorer) -> None:
    """Write the scores of the kept pairs of a block, unless an earlier run has written them."""
    path = job.scored(block)
    if not path.exists():
        pairs = load_pairs(job, block)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, scorer.score([pairs[position] for position in np.flatnonzero(keep)]))


def _find_threshold(job: PreparationJob, keep: Sequence[Mask], scorer: PairScorer) -> float:
    """The threshold for the scores of some pairs, and of the same pairs mismatched."""
    share = MISMATCHED_PAIRS / max(1, sum(int(mask.sum()) for mask in keep))
    sampled: list[tuple[float, tuple[str, str], float]] = []
    for block, mask in enumerate(keep):
        positions = np.flatnonzero(mask)
        keys = random_keys(load_hashes(job, block)[positions], [job.settings.corpus.seed, _RANDOM_STREAM])
        chosen = np.flatnonzero(keys < share)
        pairs, scores = load_pairs(job, block), np.load(job.scored(block))
        sampled += [(float(keys[i]), pairs[positions[i]], float(scores[i])) for i in chosen]
    mismatched = mismatch([pair for _, pair, _ in sorted(sampled)])
    return find_threshold([score for *_, score in sampled], scorer.score(mismatched).tolist())


def find_threshold(real: Sequence[float], mismatched: Sequence[float]) -> float:
    """The threshold between the scores of real and of mismatched pairs; one that drops nothing if there are none."""
    return round(best_threshold(real, mismatched), SCORE_DIGITS) if real and mismatched else LOWEST_SCORE


def best_threshold(real: Sequence[float], mismatched: Sequence[float]) -> float:
    """The threshold with the lowest cost of mismatched pairs that are kept, and of real ones that are lost."""
    candidates = np.unique([*real, *mismatched])
    found, lost = (np.searchsorted(np.sort(scores), candidates) / len(scores) for scores in (mismatched, real))
    return float(candidates[np.argmax(found - COST_OF_LOSS * lost)])


def mismatch(pairs: TextPairs) -> TextPairs:
    """Each source with the target of the next pair by the length of the target, where both sides differ.

    Equal sources may have several good translations.
    """
    ordered = sorted(pairs, key=lambda pair: len(pair[1]))
    following = ordered[1:] + ordered[:1]
    return [(pair[0], other[1]) for pair, other in zip(ordered, following, strict=True) if _differ(pair, other)]


def _differ(pair: tuple[str, str], other: tuple[str, str]) -> bool:
    return pair[0] != other[0] and pair[1] != other[1]
