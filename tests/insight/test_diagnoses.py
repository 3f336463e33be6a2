import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import events
from dragoman.events import StepDone
from dragoman.insight.answer import Answer
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.run_history import RunHistory, build_history
from dragoman.insight.run_summary import summarize
from dragoman.insight.time_use import time_by_activity
from dragoman.late_worker_events import WorkersLate
from dragoman.number_format import percent

from .synthetic_runs import host_sample, power_law, synthetic_run


def warnings(history: RunHistory) -> set[str]:
    return {answer.key for answer in (*diagnose(history), *answer_all(history)) if answer.is_warning}


def diagnosis(history: RunHistory, key: str) -> Answer:
    return next(found for found in diagnose(history) if found.key == key)


def network_bound(done: StepDone) -> StepDone:
    return replace(done, step_s=20.5, communication_s=19.56)


def straggler(done: StepDone) -> StepDone:
    return replace(done, step_s=1.6, communication_s=0.06, straggler_s=0.6, ready_s=[0.94, 1.54])


def input_bound(done: StepDone) -> StepDone:
    return replace(done, step_s=1.5, data_s=0.5)


def recompiling(done: StepDone) -> StepDone:
    return replace(done, step_s=1.2, compile_s=0.3) if done.step % 3 == 0 else done


def upturn(step: int) -> float:
    return 1.5 + 4 * abs(step - 160) / 400


def rising(step: int) -> float:
    return 3 + step / 100


def split_in_four(done: StepDone) -> StepDone:
    return replace(done, micro_batches=4) if done.step >= OUT_OF_MEMORY.step else done


def skipped(step: int, consecutive: int) -> events.StepSkipped:
    return events.StepSkipped(step=step, loss=math.nan, gradient_norm=1.0, consecutive=consecutive)


OUT_OF_MEMORY = events.MicroBatchesSplit(step=30, micro_batches=4, reason="CUDA out of memory")
RUNS = {
    "healthy": ({}, set()),
    "healthy on one worker": ({"world": 1, "hosts": ("a",)}, set()),
    "healthy and long": ({"steps": 3000, "evaluate_every": 200}, set()),
    "healthy and still running": ({"ended": None, "total_steps": 2000}, set()),
    "healthy with noise": ({"valid_loss": lambda step: power_law(step) * (1 + 0.01 * ((step // 40) % 2))}, set()),
    "converged": ({"valid_loss": lambda step: 1.5 + 40 * step**-1.8}, set()),
    "network-bound": ({"step": network_bound}, {"network"}),
    "straggler": ({"step": straggler}, {"straggler"}),
    "input-bound": ({"step": input_bound}, {"input"}),
    "recompiling": ({"step": recompiling}, {"compiling"}),
    "checkpoint-bound": ({"stall_s": 5.0}, {"checkpoint-stalls"}),
    "overfitting": (
        {"valid_loss": upturn, "train_loss": power_law, "bleu": lambda step: min(20, step / 8)},
        {"overfitting"},
    ),
    "diverging": ({"train_loss": rising, "valid_loss": rising}, {"diverging"}),
    "losses that are not finite": ({"extra": [skipped(n, consecutive=n) for n in range(1, 12)]}, {"diverging"}),
    "one loss that is not finite": ({"extra": [skipped(9, consecutive=1)]}, set()),
    "diverged in the first steps": (
        {"train_loss": lambda step: 8.0 if step == 1 else 90.0, "valid_loss": lambda step: 90.0 - step / 100},
        {"diverging"},
    ),
    "out of memory": ({"step": split_in_four, "extra": [OUT_OF_MEMORY]}, {"out-of-memory"}),
    "out of memory for a while": ({"extra": [OUT_OF_MEMORY]}, set()),
    "host lost": (
        {"extra": [events.WorkersLost(step=90, workers=["worker 1 on b (step 90, computing)"], reason="no heartbeat")]},
        {"lost"},
    ),
    "late workers": (
        {"extra": [WorkersLate(step=90, workers=["worker 1 on b (step 89, computing)"])]},
        {"late"},
    ),
    "replicas drifted": (
        {"extra": [events.ReplicasDrifted(step=90, workers=["worker 1 on b"], has_majority=True)]},
        {"drifted"},
    ),
    "disk full": ({"extra": [events.CheckpointFailed(step=50, reason="No space left")]}, {"checkpoint-failed"}),
    "hot": ({"extra": [host_sample("b", n, throttled=["heat"]) for n in range(5)]}, {"throttled"}),
    "power cap": ({"extra": [host_sample("b", 3)]}, set()),
}


@pytest.mark.parametrize("kind", RUNS)
def test_each_kind_of_run_gets_its_own_warning_and_no_other(kind):
    changes, expected = RUNS[kind]
    extra = changes.get("extra", ())
    recorded = synthetic_run(**{**changes, "extra": [event for event in extra if hasattr(event, "step")]})
    history = build_history([*recorded, *(event for event in extra if not hasattr(event, "step"))])
    assert warnings(history) == expected
    for answer in (*diagnose(history), *answer_all(history)):
        assert not answer.is_warning or answer.remedy, "a warning says what to do"
        assert answer.evidence or not answer.is_warning


@settings(max_examples=15)
@given(
    st.integers(0, 60), st.floats(0.01, 30), st.integers(1, 5), st.sampled_from(["finished", "interrupted", None]),
    st.integers(3, 50),
)  # fmt: skip
def test_healthy_runs_of_any_length_and_speed_get_no_warning(steps, scale, world, ended, evaluate_every):
    def scaled(done: StepDone) -> StepDone:
        spans = ("step_s", "data_s", "compute_s", "communication_s", "straggler_s", "optimizer_s")
        ready_s = [scale * seconds for seconds in done.ready_s]
        return replace(done, ready_s=ready_s, **{name: scale * getattr(done, name) for name in spans})

    recorded = synthetic_run(
        steps, total_steps=60, world=world, step=scaled, ended=ended, evaluate_every=evaluate_every
    )
    history = build_history(recorded)
    found = warnings(history) - {"evaluation", "checkpoint-stalls"}  # These do take most of the time of 0.01 s steps.
    assert found == set()
    assert len(answer_all(history)) == 11
    assert summarize(history, history.session_spans_s[-1][1])["overview"]["how"]


def test_an_elastic_world_is_advised_only_where_there_was_none():
    lost = events.WorkersLost(step=90, workers=["worker 1 on b (step 90, computing)"], reason="no heartbeat")
    changed = events.WorldChanged(step=90, workers=["worker 0 on a"])
    static, elastic = (
        diagnosis(build_history(synthetic_run(extra=extra)), "lost") for extra in ([lost], [lost, changed])
    )
    assert "--elastic" in static.remedy
    assert elastic.remedy == "Check that machine's power, memory and network."


def test_the_share_of_evaluations_is_that_of_the_whole_run():
    """The first evaluation, which prepares, does not decide whether they take much time, but took its time, too."""
    history = build_history(synthetic_run(18, evaluate_every=3))
    share = time_by_activity(history)["evaluation"] / history.elapsed_s
    assert diagnosis(history, "evaluation").text == f"Yes: {percent(share)} of the run." == "Yes: 40 % of the run."


def test_the_diagnosis_names_the_straggler():
    history = build_history(synthetic_run(step=straggler))
    assert "worker 1 on b needs 1.5 s" in diagnosis(history, "straggler").text


def test_a_machine_whose_memory_is_almost_full_is_named():
    recorded = [*synthetic_run(60), replace(host_sample("b", 3), memory_used_bytes=98, memory_bytes=100)]
    assert "98 % of 100 B in use on b" in diagnosis(build_history(recorded), "memory").text
