"""Scores of translations by both directions, with the shard."""

from collections.abc import Sequence

import numpy as np

from dragoman.decoding.line_translator import Candidate
from dragoman.synthesis.candidate_scoring import score_shard, without_scores
from dragoman.synthesis.shard_store import StoredCandidate

LINES = ["a  house", "the old dog", "", "a  house"]
CANDIDATES = [
    [Candidate("ein Haus", -0.5), Candidate("Haus", -0.7)],
    [Candidate("der alte Hund", -0.25)],
    [Candidate("", 0.0)],
    [Candidate("ein Haus", -0.5)],
]


class NumberingScorer:
    """Numbers the pairs that it is given."""

    rule = "agreement"
    identity = ""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.pairs += pairs
        return np.arange(len(pairs), dtype=np.float32)


def test_each_translation_is_scored_once_beside_the_line_as_it_was_translated() -> None:
    scorer = NumberingScorer()
    scored = score_shard(scorer, LINES, CANDIDATES, sampled_share=0.0)
    assert scorer.pairs == [("a house", "ein Haus"), ("a house", "Haus"), ("the old dog", "der alte Hund")]
    assert scored.lines == [
        ("a  house", [StoredCandidate("ein Haus", -0.5, 0.0), StoredCandidate("Haus", -0.7, 1.0)]),
        ("the old dog", [StoredCandidate("der alte Hund", -0.25, 2.0)]),
        ("", [StoredCandidate("", 0.0, None)]),
        ("a  house", [StoredCandidate("ein Haus", -0.5, 0.0)]),
    ]
    assert (scored.real_scores, scored.mismatched_scores) == ([], [])


def test_lines_with_the_translations_of_others_are_scored_in_the_same_batches() -> None:
    scorer = NumberingScorer()
    scored = score_shard(scorer, LINES, CANDIDATES, sampled_share=1.0)
    mismatched = scorer.pairs[3:]
    assert mismatched == [("a house", "der alte Hund"), ("the old dog", "Haus")]
    assert scored.real_scores == [0.0, 1.0, 2.0]
    assert scored.mismatched_scores == [3.0, 4.0]


def test_a_sample_has_about_its_share_of_any_text() -> None:
    lines = [f"line {number}" for number in range(1000)]
    candidates = [[Candidate(f"Zeile {number}", -1.0)] for number in range(1000)]
    scored = score_shard(NumberingScorer(), lines, candidates, sampled_share=0.2)
    assert 150 < len(scored.real_scores) < 250
    assert 150 < len(scored.mismatched_scores) < 250


def test_without_a_backward_model_there_are_no_scores() -> None:
    assert without_scores(LINES[2:], CANDIDATES[2:]).lines[0] == ("", [StoredCandidate("", 0.0, None)])
