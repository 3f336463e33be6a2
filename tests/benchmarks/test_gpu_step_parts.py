from dataclasses import replace

import pytest
from benchmarks.gpu_step_parts import judge_parts, window_errors

from dragoman.events import StepDone

from ..insight.synthetic_runs import synthetic_run


def errors(**changes: object) -> dict[str, float]:
    """The judged errors of a synthetic run, by the target's name."""
    recorded = synthetic_run(400, evaluate_every=200, **changes)
    figures = [figure for figure in judge_parts("small", recorded) if "2 %" in figure.target]
    return dict(zip(("each step", "clock", "run"), (figure.value for figure in figures), strict=True))


def test_right_parts_have_no_error():
    assert errors() == pytest.approx(dict.fromkeys(("each step", "clock", "run"), 0.0), abs=1e-6)


def test_the_compute_time_of_another_step_is_noticed():
    def stale(done: StepDone) -> StepDone:
        return replace(done, compute_s=12.0 if done.step < 120 else done.compute_s)

    found = errors(step=stale)
    assert found["each step"] > 10
    assert found["run"] > 2
    assert found["clock"] == pytest.approx(0, abs=1e-6), "the steps are as long as they were"


def test_steps_are_compared_with_the_clock_between_evaluations():
    assert len(list(window_errors(synthetic_run(400, evaluate_every=200)))) == 6
    assert not list(window_errors(synthetic_run(400, evaluate_every=20)))
