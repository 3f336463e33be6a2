"""Simulated runs with a slow first step, steps of constant time, evaluations and checkpoints."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dragoman.events import CheckpointSaved, EvaluationDone, Event, StepDone
from dragoman.insight.run_history import build_history
from dragoman.insight.time_and_cost import estimate_remaining_time
from dragoman.recipe import resolve
from dragoman.settings import Settings
from dragoman.telemetry.remaining_time import WARM_UP_STEPS, RunWork
from dragoman.telemetry.throughput import ThroughputMeter
from dragoman.training.due_work import due_after

from ..insight.synthetic_runs import checkpoint, evaluation, synthetic_run

START_S = 1.7e9
STARTED, OPENED, DONE = synthetic_run(1, ended=None)[1:4]


def simulate(settings: Settings, step_s: float, first_s: float, evaluation_s: float, stall_s: float, noise: float):
    """Events of a run from its start to its end, and the time of its end."""
    random, now, total = Random(3), START_S, settings.training.steps
    recorded: list[Event] = [
        replace(STARTED, total_steps=total, settings=settings.model_dump(mode="json"), at_s=START_S)
    ]
    for number in range(1, total + 1):
        first = {1: (first_s, first_s * 0.9), 2: (first_s * 0.2, 0.0)}
        spent_s, compile_s = first.get(number, (step_s * random.uniform(1 - noise, 1 + noise), 0.0))
        now += spent_s
        recorded.append(replace(DONE, step=number, step_s=spent_s, compile_s=compile_s, at_s=now))
        due = due_after(number, settings, 0)
        if due.evaluation:
            now += evaluation_s
            recorded.append(replace(evaluation(number, 2.0, None, now), evaluation_s=evaluation_s))
        if due.checkpoint:
            now += stall_s
            recorded.append(checkpoint(number, stall_s, now))
    return recorded, now + (evaluation_s if settings.checkpoint.average else 0.0)


@given(
    total=st.integers(200, 1200),
    evaluate_at=st.floats(0.01, 0.049),
    save_every=st.integers(10, 400),
    average=st.sampled_from([0, 3]),
    step_s=st.floats(0.01, 3),
    first_s=st.floats(0, 300),
    evaluation_steps=st.floats(0.1, 40),
    stall_steps=st.floats(0, 13),
    noise=st.floats(0, 0.2),
)
def test_the_estimate_is_right_early_in_the_run_and_says_measuring_before(
    total, evaluate_at, save_every, average, step_s, first_s, evaluation_steps, stall_steps, noise
):
    evaluate_every = max(1, int(evaluate_at * total))
    early = max(7, total // 20)
    assume(evaluate_every < early)  # Otherwise nothing is known of evaluations yet; in the next line, of stalls.
    assume(save_every < early or save_every % evaluate_every == 0)
    overrides = [
        f"training.steps={total}", f"evaluation.every={evaluate_every}", f"checkpoint.every={save_every}",
        f"checkpoint.average={average}",
    ]  # fmt: skip
    settings = resolve("tiny", overrides).settings
    recorded, ended_at_s = simulate(settings, step_s, first_s, evaluation_steps * step_s, stall_steps * step_s, noise)
    meter, shown = ThroughputMeter(settings), {}
    for index, event in enumerate(recorded):
        meter.record(event)
        if isinstance(event, StepDone):
            shown[event.step] = meter.remaining_time
            if event.step < WARM_UP_STEPS + 2:
                assert meter.remaining_time is None
        if isinstance(event, StepDone) and event.step in (early, total // 5):
            tolerance = 0.1 if event.step < total // 5 else 0.05
            estimated = estimate_remaining_time(build_history(recorded[: index + 1]))
            assert estimated == meter.remaining_time, "terminal, page and report say the same"
            assert estimated.total_s == pytest.approx(ended_at_s - event.at_s, rel=tolerance)
    assert all(shown[step] is not None for step in range(WARM_UP_STEPS + 2, total + 1))


@given(st.integers(1, 300), st.integers(1, 350), st.integers(1, 350), st.booleans(), st.data())
def test_work_still_to_come_is_what_the_trainer_will_do(total, evaluate_every, save_every, averages, data):
    settings = resolve(
        "tiny", [f"training.steps={total}", f"evaluation.every={evaluate_every}", f"checkpoint.every={save_every}"]
    ).settings
    step = data.draw(st.integers(1, total))
    is_evaluated = data.draw(st.booleans())
    due = {number: due_after(number, settings, 0) for number in range(step, total + 1)}
    evaluations = [number for number in due if due[number].evaluation]
    saved = [number for number in due if due[number].checkpoint]
    done: list[EvaluationDone] = [replace(evaluation(step - 1, 1.0, None, 0.0), evaluation_s=1.0)]
    if is_evaluated and step in evaluations:
        done.append(replace(evaluation(step, 1.0, None, 0.0), evaluation_s=1.0))
        evaluations.remove(step)
    stalls: list[CheckpointSaved] = [checkpoint(step - 1, 1.0, 0.0)]
    work = RunWork(total, evaluate_every, save_every, averages)
    left = work.remaining_time(step, 0, [replace(DONE, step_s=1.0)] * 2, done, stalls)
    assert left.steps_s == total - step
    assert left.evaluations_s == len(evaluations) + averages
    assert left.checkpoints_s == len(saved)


def test_before_the_first_evaluation_those_to_come_are_told():
    work = RunWork(1000, 300, 1000, averages=False)
    assert str(work.remaining_time(10, 0, [replace(DONE, step_s=1.0)] * 3, [], [])) == "16 min 30 s plus 4 evaluations"
    assert str(work.remaining_time(910, 0, [replace(DONE, step_s=1.0)] * 3, [], [])) == "1 min 30 s plus 1 evaluation"


@pytest.mark.parametrize(("resumed_step", "expected_s"), [(0, [4.0, 0.6, 0.7]), (200, [4.0, 2.3, 2.3])])
def test_the_first_evaluation_of_a_session_counts_only_while_there_is_no_other(resumed_step, expected_s):
    """It compiles and warms up. Of a resumed run, evaluations before the resume count, too."""
    work, steps = RunWork(1000, 100, 1000, averages=False), [replace(DONE, step_s=1.0)] * 2
    taken_s = (4.0, 0.6, 0.8)
    done = [replace(evaluation(100 * number, 1.0, None, 0.0), evaluation_s=s) for number, s in enumerate(taken_s, 1)]
    for number, mean_s in enumerate(expected_s, 1):
        left = work.remaining_time(100 * number, resumed_step, steps, done[:number], [])
        assert left.evaluations_s == pytest.approx((10 - number) * mean_s, abs=0.01)


def test_the_evaluation_of_the_starting_model_is_the_one_that_warms_up():
    work, steps = RunWork(1000, 100, 1000, averages=False), [replace(DONE, step_s=1.0)] * 2
    taken_s = {0: 4.0, 100: 0.6, 200: 0.8}
    done = [replace(evaluation(step, 1.0, None, 0.0), evaluation_s=s) for step, s in taken_s.items()]
    for number, resumed_step, mean_s in ((1, 0, 4.0), (3, 0, 0.7), (3, 100, 2.3)):
        left = work.remaining_time(250, resumed_step, steps, done[:number], [])
        assert left.evaluations_s == pytest.approx(8 * mean_s)


def test_a_resumed_run_measures_again():
    settings = resolve("tiny", ["training.steps=400", "evaluation.every=20"]).settings
    recorded, _ = simulate(settings, 1.0, 60.0, 2.0, 0.1, 0.0)
    at_100 = recorded[: recorded.index(next(e for e in recorded if isinstance(e, StepDone) and e.step == 101))]
    resumed = replace(recorded[0], resumed_step=100, at_s=START_S + 1000)
    faster = [replace(DONE, step=100 + n, step_s=0.5, at_s=START_S + 1000 + n) for n in range(1, 9)]
    assert estimate_remaining_time(build_history([*at_100, resumed, *faster[:6]])) is None
    assert estimate_remaining_time(build_history([*at_100, resumed, *faster])).steps_s == 292 * 0.5
