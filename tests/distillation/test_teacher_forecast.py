"""What would make a teacher better, by its own run."""

import re
from pathlib import Path

import pytest

from dragoman.distillation.teacher_forecast import describe_better_teacher, describe_longer_training, find_run
from dragoman.insight.run_history import build_history

from ..insight.synthetic_runs import PRICED, power_law, synthetic_run, write_run


def test_longer_training_has_a_forecast_a_time_and_a_cost() -> None:
    history = build_history(synthetic_run(400, overrides=[*PRICED, "schedule.policy=constant"]))
    text = describe_longer_training(history)
    found = re.match(
        r"50 % more steps \((.*), [\d.]+ EUR\): validation loss (\S+) to about (\S+) \((\S+) to (\S+)\)$", text
    )
    assert found, text
    last, value, low, high = map(float, found.groups()[1:])
    assert last == pytest.approx(power_law(400), abs=1e-3)
    assert low <= value <= high
    assert value == pytest.approx(power_law(600), abs=0.01)


def test_a_learning_rate_that_has_decayed_needs_a_new_run() -> None:
    history = build_history(synthetic_run(400, overrides=["schedule.policy=cosine"]))
    assert describe_longer_training(history).startswith("a new run of 600 steps (")


def test_a_run_with_few_evaluations_has_no_forecast() -> None:
    history = build_history(synthetic_run(400, evaluate_every=200))
    assert "a forecast needs 3 evaluations, its run has 2" in describe_longer_training(history)


def test_a_checkpoint_belongs_to_its_run_and_an_export_to_none(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", synthetic_run(400))
    assert find_run(run) == find_run(run / "checkpoints" / "averaged") == run
    assert "validation loss" in describe_better_teacher(run)
    assert describe_better_teacher(tmp_path / "export").startswith("longer training: not known, the teacher is not in")
