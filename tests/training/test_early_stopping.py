import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events import EvaluationDone
from dragoman.training.checkpoint import BEST_BLEU, BEST_LOSS, BEST_TRADE_OFF
from dragoman.training.early_stopping import update_best
from dragoman.training.snapshot import TrainingState


def evaluation(nll: float, bleu: float | None = None, chrf: float | None = None) -> EvaluationDone:
    return EvaluationDone(
        step=1, loss=nll + 1, nll=nll, perplexity=2.0, bleu=bleu, bleu_signature=None, chrf=chrf, chrf_signature=None,
        target_tokens=10, evaluation_s=0.1, samples=[],
    )  # fmt: skip


def test_the_first_evaluation_is_the_best():
    state, links = update_best(TrainingState(), evaluation(3.0, bleu=10.0, chrf=20.0), "loss")
    assert state.best == {"loss": 3.0, "bleu": 10.0, "chrf": 20.0}
    assert links == [BEST_LOSS, BEST_BLEU]
    assert state.loss == 3.0


def test_a_lower_loss_and_a_higher_bleu_are_better():
    state, _ = update_best(TrainingState(), evaluation(3.0, bleu=10.0), "loss")
    assert update_best(state, evaluation(2.9, bleu=9.0), "loss")[1] == [BEST_LOSS]
    assert update_best(state, evaluation(3.1, bleu=11.0), "loss")[1] == [BEST_BLEU]
    assert update_best(state, evaluation(3.0, bleu=10.0), "loss")[1] == []


def test_an_evaluation_without_bleu_keeps_the_best_bleu():
    state, _ = update_best(TrainingState(), evaluation(3.0, bleu=10.0), "loss")
    state, links = update_best(state, evaluation(2.0), "loss")
    assert links == [BEST_LOSS]
    assert state.best["bleu"] == 10.0


@pytest.mark.parametrize(("metric", "stale"), [("loss", 0), ("bleu", 1), ("chrf", 0)])
def test_patience_follows_its_metric_only(metric, stale):
    state, _ = update_best(TrainingState(), evaluation(3.0, bleu=10.0, chrf=20.0), metric)
    state, _ = update_best(state, evaluation(2.0, bleu=9.0, chrf=21.0), metric)
    assert state.stale_evaluations == stale


@given(st.lists(st.floats(0, 100) | st.sampled_from([math.nan, math.inf]), min_size=1))
def test_values_that_are_not_finite_never_count_as_the_best(losses):
    state, moved = TrainingState(), []
    for step, nll in enumerate(losses):
        state, links = update_best(state, evaluation(nll, bleu=nll), "loss")
        moved += [step] * (BEST_LOSS in links)
        assert state.loss == (nll if math.isfinite(nll) else None)
    finite = [nll for nll in losses if math.isfinite(nll)]
    assert state.best == ({"loss": min(finite), "bleu": max(finite)} if finite else {})
    assert moved[-1:] == ([losses.index(min(finite))] if finite else [])


def test_a_finite_loss_is_better_than_one_that_is_not():
    state, links = update_best(TrainingState(best={"loss": math.nan}), evaluation(3.0), "loss")
    assert (state.best["loss"], links) == (3.0, [BEST_LOSS])


@given(st.lists(st.floats(0, 100), min_size=1))
def test_stale_evaluations_count_from_the_best_one(losses):
    state = TrainingState()
    for nll in losses:
        state, _ = update_best(state, evaluation(nll), "loss")
    assert state.best["loss"] == min(losses)
    assert state.stale_evaluations == len(losses) - 1 - losses.index(min(losses))


def test_the_rest_of_the_state_does_not_change():
    before = TrainingState(step=7, rollbacks=1, learning_rate_factor=0.5, elapsed_s=3.0)
    after, _ = update_best(before, evaluation(3.0), "loss")
    assert (after.step, after.rollbacks, after.learning_rate_factor, after.elapsed_s) == (7, 1, 0.5, 3.0)
    assert before.best == {}


def test_the_best_trade_off_gains_most_without_significant_losses():
    start = replace(evaluation(3.0, bleu=20.0), step=0, sets={"news": {"bleu": 25.0}})
    state, links = update_best(TrainingState(), start, "bleu")
    assert (state.best["net_gain"], links) == (0.0, [BEST_LOSS, BEST_BLEU, BEST_TRADE_OFF])
    moved = []
    for own, news in ((2.0, -0.2), (5.0, -1.0), (8.0, -5.0)):
        gains = {
            name: {"bleu": bleu, "low": bleu - 0.4, "high": bleu + 0.4}
            for name, bleu in (("valid", own), ("news", news))
        }
        state, links = update_best(state, replace(start, step=9, bleu=20 + own, gains=gains), "bleu")
        moved.append(BEST_TRADE_OFF in links)
    assert moved == [True, True, False], "8 gained and 5 lost is less than 5 gained and 1 lost"
    assert state.best["net_gain"] == 4.0


def test_a_run_with_one_evaluation_set_has_no_trade_off():
    state, _ = update_best(TrainingState(), replace(evaluation(3.0, bleu=20.0), step=0), "bleu")
    gains = {"valid": {"bleu": 1.0, "low": 0.5, "high": 1.5}}
    state, links = update_best(state, replace(evaluation(2.0, bleu=21.0), gains=gains), "bleu")
    assert links == [BEST_LOSS, BEST_BLEU]
    assert "net_gain" not in state.best
