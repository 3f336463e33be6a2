from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import events
from dragoman.events import Event, RunEnded, RunStarted, StepDone
from dragoman.insight.run_history import build_history
from dragoman.insight.time_use import ACTIVITIES, between_sessions_s, elapsed_at, time_by_activity

from .synthetic_runs import checkpoint, evaluation, synthetic_run

START, STEP = (next(event for event in synthetic_run(1) if isinstance(event, kind)) for kind in (RunStarted, StepDone))


def session(first: int, last: int, start_at_s: float, **step: float) -> list[Event]:
    """A killed session that resumed after step `first` and took a step each second up to `last`."""
    started = replace(START, at_s=start_at_s, session_at_s=start_at_s, resumed_step=first)
    steps = [
        replace(STEP, step=number, at_s=start_at_s + number - first, **step) for number in range(first + 1, last + 1)
    ]
    return [started, *steps]


def used(recorded: list[Event]) -> dict[str, float]:
    """Activities of more than a millisecond, rounded."""
    return {
        name: round(seconds, 3) for name, seconds in time_by_activity(build_history(recorded)).items() if seconds > 1e-3
    }


def test_each_activity_of_a_run_has_its_time():
    recorded = synthetic_run(400, evaluate_every=40, stall_s=0.5)
    averaged = events.CheckpointsAveraged(
        at_s=recorded[-1].at_s + 3, step=400, names=["a"], nll=1.0, bleu=None, chrf=None, averaging_s=3.0
    )
    assert used([*recorded[:-1], averaged, replace(recorded[-1], at_s=averaged.at_s)]) == pytest.approx(
        {
            "compute": 336.0, "optimizer update": 40.0, "data wait": 0.4, "straggler wait": 2.0, "communication": 21.6,
            "evaluation": 20.0, "checkpoint stalls": 5.0, "averaging": 3.0,
        },
        abs=0.01,
    )  # fmt: skip


def test_steps_that_were_undone_by_a_resume_are_lost_work():
    saved = checkpoint(10, 0.0, 1010.0 + 1.5)  # Written in the background for 1.5 s.
    recorded = [*session(0, 30, 1000.0), saved, *session(10, 15, 2000.0)]
    history = build_history(recorded)
    assert time_by_activity(history)["lost work"] == pytest.approx(20.0)
    assert history.elapsed_s == pytest.approx(35.0)
    assert between_sessions_s(history) == pytest.approx(970.0)


def test_a_second_resume_may_undo_an_entire_session():
    recorded = [*session(0, 30, 1000.0), *session(20, 25, 2000.0), *session(10, 15, 3000.0)]
    assert time_by_activity(build_history(recorded))["lost work"] == pytest.approx(20.0 + 5.0)


def test_a_rollback_loses_the_steps_since_the_checkpoint():
    rolled_back = events.RolledBack(at_s=1030.5, from_step=30, to_step=10, learning_rate_factor=0.5)
    after = [replace(STEP, step=number, at_s=1020.5 + number) for number in range(11, 15)]
    assert time_by_activity(build_history([*session(0, 30, 1000.0), rolled_back, *after]))["lost work"] == 20.5


def test_nothing_is_lost_by_a_session_that_ended_properly():
    ended = RunEnded(at_s=1032.0, step=30, reason="interrupted", elapsed_s=32.0)
    assert time_by_activity(build_history([*session(0, 30, 1000.0), ended, *session(30, 40, 2000.0)]))["lost work"] == 0


def test_the_time_in_which_workers_were_lost_is_no_step_and_no_evaluation():
    lost = events.WorkersLost(at_s=1013.0, step=10, workers=["worker 1 on b"], reason="no heartbeat")
    changed = events.WorldChanged(at_s=1015.0, step=10, workers=["worker 0 on a"])
    evaluated = evaluation(10, 1.0, None, 1012.0)
    after = [replace(STEP, step=number, at_s=1010.0 + number) for number in range(11, 15)]
    recorded = [*session(0, 10, 1000.0), evaluated, lost, changed, *after]
    found = time_by_activity(build_history(recorded))
    assert (found["evaluation"], found["changes of workers"]) == (2.0, 8.0)


def test_the_time_between_sessions_does_not_elapse():
    history = build_history([*session(0, 30, 1000.0), *session(30, 40, 2000.0)])
    assert [elapsed_at(history, at_s) for at_s in (990, 1010, 1500, 2005, 9999)] == [0, 10, 30, 35, 40]


SECONDS = st.floats(0, 5)
PARTS = ("data_s", "compute_s", "communication_s", "straggler_s", "optimizer_s", "host_s", "compile_s")


@st.composite
def resumed_runs(draw: st.DrawFn) -> list[Event]:
    """Sessions that end anywhere and go back anywhere, with parts of steps that need not fit their times."""
    now, step, recorded = 1e9, 0, []
    for _ in range(draw(st.integers(1, 4))):
        now += draw(SECONDS)
        step = draw(st.integers(0, step))
        recorded.append(replace(START, at_s=now, session_at_s=now - draw(SECONDS), resumed_step=step))
        for _ in range(draw(st.integers(0, 6))):
            now += draw(SECONDS)
            step += 1
            parts = {part: draw(SECONDS) for part in PARTS}
            recorded.append(replace(STEP, at_s=now, step=step, step_s=draw(SECONDS), **parts))
            match draw(st.sampled_from(["", "", "evaluate", "save", "roll back", "lose"])):
                case "evaluate":
                    recorded.append(evaluation(step, 1.0, None, now))
                case "save":
                    recorded.append(checkpoint(step, draw(SECONDS), now + draw(SECONDS)))
                case "lose":
                    recorded.append(events.WorkersLost(at_s=now, step=step, workers=[], reason="r"))
                case "roll back":
                    target = draw(st.integers(0, step))
                    recorded.append(
                        events.RolledBack(at_s=now, from_step=step, to_step=target, learning_rate_factor=0.5)
                    )
                    step = target
    if draw(st.booleans()):
        recorded.append(RunEnded(at_s=now, step=step, reason="finished", elapsed_s=1.0))
    return recorded


@given(resumed_runs())
def test_activities_are_never_negative_and_sum_to_the_elapsed_time(recorded):
    history = build_history(recorded)
    found = time_by_activity(history)
    assert tuple(found) == ACTIVITIES
    assert all(seconds >= 0 for seconds in found.values())
    assert sum(found.values()) == pytest.approx(history.elapsed_s, abs=1e-6)
