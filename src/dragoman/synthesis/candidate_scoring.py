"""Scores of a shard's translations by the models of both directions.

All that a score depends on is in the shard: the pair, the pairs that it is compared with, and the batches. So it has
the same bits on any number of equal machines, and nothing has to be rounded for it. The threshold is found from the
scores of all shards, when the corpus is made: no machine decides alone.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from dragoman.corpus.model_filter import SCORE_DIGITS, PairScorer, mismatch
from dragoman.decoding.line_translator import Candidate, normalize_line
from dragoman.synthesis.shard_store import StoredCandidate, TranslatedLine

Pair = tuple[str, str]


@dataclass(frozen=True)
class ScoredShard:
    """The lines of a shard with their translations, and samples of scores."""

    lines: list[TranslatedLine]
    real_scores: list[float] = field(default_factory=list)
    mismatched_scores: list[float] = field(default_factory=list)


def without_scores(lines: Sequence[str], candidates: Sequence[Sequence[Candidate]]) -> ScoredShard:
    """The translations as the search found them."""
    stored = ([StoredCandidate(each.text, each.score) for each in found] for found in candidates)
    return ScoredShard(list(zip(lines, stored, strict=True)))


def score_shard(
    scorer: PairScorer, lines: Sequence[str], candidates: Sequence[Sequence[Candidate]], sampled_share: float
) -> ScoredShard:
    """Score all translations, and a share of the lines with the translations of others."""
    sources = [normalize_line(line) for line in lines]  # As they were translated.
    translated = list(zip(sources, candidates, strict=True))
    pairs = list(dict.fromkeys((source, each.text) for source, found in translated for each in found if each.text))
    mismatched = [pair for pair in mismatch(pairs) if _random_key(pair) < sampled_share]
    # Together: few mismatched pairs alone would have no other source of similar length.
    scores = [round(score, SCORE_DIGITS) for score in scorer.score([*pairs, *mismatched]).tolist()]
    score_of = dict(zip(pairs, scores[: len(pairs)], strict=True))
    stored = [
        [StoredCandidate(each.text, each.score, score_of.get((source, each.text))) for each in found]
        for source, found in translated
    ]
    real = [score for pair, score in score_of.items() if _random_key(pair) < sampled_share]
    return ScoredShard(list(zip(lines, stored, strict=True)), real, scores[len(pairs) :])


def _random_key(pair: Pair) -> float:
    """A number in [0, 1) that depends on the text alone."""
    return zlib.crc32("\t".join(pair).encode()) / 2**32
