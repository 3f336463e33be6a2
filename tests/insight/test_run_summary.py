import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events import StepDone
from dragoman.insight.page import render, to_script_json
from dragoman.insight.run_history import build_history
from dragoman.insight.run_summary import MAX_POINTS, buckets, summarize

from .synthetic_runs import synthetic_run
from .test_diagnoses import network_bound


@given(st.lists(st.integers()), st.integers(1, 50))
def test_buckets_hold_every_item_once_in_order(items, max_buckets):
    groups = buckets(items, max_buckets)
    assert [item for group in groups for item in group] == items
    assert len(groups) <= max_buckets


def test_numbers_of_the_summary_are_those_of_the_events():
    recorded = synthetic_run(100, evaluate_every=20)
    summary = summarize(build_history(recorded), 0)
    steps = [event for event in recorded if isinstance(event, StepDone)]
    assert summary["curves"]["step"] == [step.step for step in steps]
    assert summary["curves"]["train_loss"] == pytest.approx([step.nll for step in steps], rel=1e-4)
    sums = [sum(column) for column in zip(*summary["step_breakdown"]["parts"].values(), strict=True)]
    assert sums == pytest.approx(summary["step_breakdown"]["step_s"], rel=1e-3)


def test_workers_show_their_own_steps_as_far_as_they_are_known():
    recorded = synthetic_run(100)
    other = [
        replace(event, worker=1, compute_s=0.5)
        for event in recorded
        if isinstance(event, StepDone) and event.step % 9 == 0
    ]
    first, second = summarize(build_history([*recorded, *other]), 0)["workers"]
    assert (first["worker"], first["parts"]["compute"]) == ("worker 0 on a", pytest.approx(0.84))
    assert (second["worker"], second["parts"]["compute"]) == ("worker 1 on b", pytest.approx(0.5))
    assert second["ready_s"] == pytest.approx(0.94, abs=0.01)
    assert summarize(build_history(recorded), 0)["workers"][1]["parts"] == {}


def test_the_summary_of_a_long_run_stays_small():
    summary = summarize(build_history(synthetic_run(20_000, evaluate_every=500)), 0)
    assert len(summary["curves"]["step"]) <= MAX_POINTS
    assert summary["curves"]["step"][-1] == 20_000
    assert len(render([summary])) < 300_000


def test_losses_that_are_not_finite_become_null():
    recorded = synthetic_run(60, valid_loss=lambda step: math.nan if step > 30 else 3.0)
    assert json.loads(to_script_json(summarize(build_history(recorded), 0)))["evaluations"][-1]["loss"] is None


def test_the_summary_has_the_overview_and_the_use_of_time():
    history = build_history(synthetic_run(step=network_bound))
    summary = summarize(history, 0)
    assert summary["overview"]["limit"].startswith("The network is the bottleneck")
    assert sum(summary["time_use"].values()) == pytest.approx(summary["elapsed_s"], rel=1e-3)
    assert summary["curves"]["elapsed_s"][-1] == pytest.approx(history.elapsed_s, abs=3)
    assert summary["evaluations"][-1]["elapsed_s"] == pytest.approx(history.elapsed_s, abs=1)


def test_incidents_are_listed_as_sentences():
    incidents = summarize(build_history(synthetic_run(60)), 0)["incidents"]
    assert incidents[0]["text"] == "synthetic started: 61.0 M parameters, 2 workers, GPU, bf16."
    assert incidents[-1]["text"].startswith("Finished after 60 steps")
