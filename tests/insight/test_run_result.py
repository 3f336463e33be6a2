import math
from dataclasses import replace

import pytest

from dragoman import events
from dragoman.insight.run_history import build_history
from dragoman.insight.run_result import find_lowest_loss, find_result

from .synthetic_runs import synthetic_run


def test_the_best_evaluation_by_bleu_is_the_result():
    result = find_result(build_history(synthetic_run(400, bleu=lambda step: 30 - abs(step - 280) / 40)))
    assert str(result) == "`checkpoints/best-bleu` (step 280, BLEU 30.0, validation loss 2.993)"


def test_the_average_is_the_result_if_it_is_the_best_and_up_to_date():
    recorded = synthetic_run(400)
    averaged = events.CheckpointsAveraged(
        at_s=recorded[-1].at_s, step=400, names=["a"], nll=1.0, bleu=40.0, chrf=50.0, averaging_s=0.0
    )
    assert find_result(build_history([*recorded, averaged])).checkpoint == "averaged"
    for other in (replace(averaged, bleu=1.0), replace(averaged, step=200)):
        assert find_result(build_history([*recorded, other])).checkpoint == "best-bleu"


def test_without_bleu_the_lowest_loss_counts():
    recorded = [
        replace(event, bleu=None, chrf=None) if isinstance(event, events.EvaluationDone) else event
        for event in synthetic_run(400)
    ]
    assert str(find_result(build_history(recorded))) == "`checkpoints/best-loss` (step 400, validation loss 2.700)"


def test_neither_bleu_nor_an_average_decides_which_evaluation_has_the_lowest_loss():
    recorded = synthetic_run(400, bleu=lambda step: 30 - abs(step - 80) / 40)
    averaged = events.CheckpointsAveraged(
        at_s=recorded[-1].at_s, step=400, names=["a"], nll=1.0, bleu=40.0, chrf=50.0, averaging_s=0.0
    )
    history = build_history([*recorded, averaged])
    assert find_lowest_loss(history).step == 400
    assert find_lowest_loss(history).nll == min(done.nll for done in history.evaluations)
    assert find_lowest_loss(build_history(synthetic_run(60, valid_loss=lambda step: float("nan")))) is None


def test_a_run_that_was_never_evaluated_has_no_result():
    assert find_result(build_history(synthetic_run(10, total_steps=100, ended=None))) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_checkpoint_whose_loss_is_not_finite_is_never_the_result(loss):
    assert find_result(build_history(synthetic_run(60, valid_loss=lambda step: loss))) is None
    later = find_result(
        build_history(synthetic_run(400, valid_loss=lambda step: loss if step > 200 else 3 - step / 400))
    )
    assert later.step == 200
    averaged = events.CheckpointsAveraged(at_s=2e9, step=400, names=["a"], nll=loss, bleu=90.0, chrf=50.0)
    assert find_result(build_history([*synthetic_run(400), averaged])).checkpoint == "best-bleu"
