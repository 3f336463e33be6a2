"""Pairs dropped by the scores of a model, here of one that knows nothing but the numbers in a text."""

import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.model_filter import mismatch
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.errors import DragomanError
from dragoman.recipe import resolve

GOOD = [
    (f"The sum of item {n} is {n * 7} dollars.", f"Die Summe von Posten {n} ist {n * 7} Dollar.") for n in range(900)
]
BAD = [(GOOD[n][0], f"Die Summe der Posten {n + 450} ist jetzt {n}.") for n in range(100)]
SETTINGS = ("tokenizer.vocabulary_size=400", "corpus.valid_pairs=20")


class NumberScorer:
    """Minus the number of numbers that differ, and a little for the letters, so that no two scores are equal."""

    rule = "score"
    identity = "numbers"

    def __init__(self) -> None:
        self.scored = 0

    def score(self, pairs):
        self.scored += len(pairs)
        sides = [[set(re.findall(r"\d+", side)) for side in pair] for pair in pairs]
        noise = [zlib.crc32("".join(pair).encode()) / 2**33 for pair in pairs]
        return np.array([-len(a ^ b) - more for (a, b), more in zip(sides, noise, strict=True)], np.float32)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    monkeypatch.setattr("dragoman.corpus.preparation.BLOCK_PAIRS", 300)
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in [*GOOD[:500], *BAD, *GOOD[500:]]))
    return Corpus("corpus", Languages("en", "de"), (Source("text", (path,), "tsv"),), (), ())


def make(corpus: Corpus, out: Path, *settings: str, workers: int = 1, scorer: NumberScorer | None = None) -> DataSet:
    prepare(
        corpus, out, resolve(None, [*SETTINGS, *settings]).settings, workers=workers, scorer=scorer or NumberScorer()
    )
    return DataSet(out)


def test_pairs_that_score_like_mismatched_ones_are_dropped_and_sampled(corpus: Corpus, tmp_path: Path) -> None:
    data = make(corpus, tmp_path / "data")
    [report] = data.manifest.sources
    dropped = report.rules["score"].pairs
    assert 0.85 * len(BAD) < dropped <= len(BAD)
    assert all(tuple(sample) in BAD for sample in report.rules["score"].samples)
    assert report.after.pairs + report.held_out == len(GOOD) + len(BAD) - dropped
    assert data.manifest.min_score is not None
    assert -5 < data.manifest.min_score < -3


def test_the_number_of_workers_does_not_change_a_scored_data_set(corpus: Corpus, tmp_path: Path) -> None:
    one, two = (make(corpus, tmp_path / f"{workers}", workers=workers) for workers in (1, 2))
    assert one.manifest == two.manifest


def test_a_given_threshold_is_used(corpus: Corpus, tmp_path: Path) -> None:
    data = make(corpus, tmp_path / "data", "cleaning.min_score=-5")
    assert data.manifest.sources[0].rules["score"].pairs == 0
    assert data.manifest.min_score == -5


def test_a_disabled_rule_scores_nothing(corpus: Corpus, tmp_path: Path) -> None:
    scorer = NumberScorer()
    data = make(corpus, tmp_path / "data", "cleaning.rules=-score", scorer=scorer)
    assert scorer.scored == 0
    assert data.manifest.min_score is None


def test_an_interrupted_run_does_not_score_its_blocks_again(corpus: Corpus, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, _: int | None) -> None:
        if (stage, done) == ("Scoring pairs", 3):
            raise KeyboardInterrupt

    settings = resolve(None, [*SETTINGS]).settings
    with pytest.raises(KeyboardInterrupt):
        prepare(corpus, tmp_path / "data", settings, workers=1, scorer=NumberScorer(), progress=interrupt)
    resumed = NumberScorer()
    data = make(corpus, tmp_path / "data", scorer=resumed)
    whole = make(corpus, tmp_path / "whole")
    mismatched = len(mismatch([*GOOD, *BAD]))
    assert resumed.scored < mismatched + 200
    assert data.manifest == whole.manifest


def test_other_models_make_another_data_set(corpus: Corpus, tmp_path: Path) -> None:
    make(corpus, tmp_path / "data")
    other = NumberScorer()
    other.identity = "others"  # type: ignore[misc]
    with pytest.raises(DragomanError, match="made from other inputs"):
        make(corpus, tmp_path / "data", scorer=other)


def test_mismatched_pairs_have_targets_of_other_pairs_of_similar_length() -> None:
    pairs = [(f"{length} {copy}", f"{copy}" * length) for length in range(1, 30) for copy in "ab"]
    for source, target in mismatch(pairs):
        length, copy = source.split()
        assert target != copy * int(length)
        assert abs(len(target) - int(length)) <= 1 or len(target) == 1
    assert mismatch([("a", "x"), ("b", "x")]) == []
    assert mismatch([]) == []
