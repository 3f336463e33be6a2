from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.events import HostSampled, RunStarted, StepDone
from dragoman.insight.answer import Answer
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.gpu_diagnoses import compute_jump
from dragoman.insight.run_history import RunHistory, build_history

from .synthetic_runs import H200_STEPS, gpu_run

SMALL, BASE = H200_STEPS["small"], H200_STEPS["transformer-base"]
HOG = {"other_processes": 1, "other_memory_bytes": 3 * 10**9}
HIDDEN = {"own_processes": 0, "other_use": None}


def warnings(history: RunHistory) -> set[str]:
    return {answer.key for answer in (*diagnose(history), *answer_all(history)) if answer.is_warning}


def diagnosis(history: RunHistory, key: str) -> Answer:
    return next(found for found in diagnose(history) if found.key == key)


def slower_from(step: int):
    def change(done: StepDone) -> StepDone:
        late_s = done.compute_s if done.step > step else 0.0
        return replace(done, step_s=done.step_s + late_s, compute_s=done.compute_s + late_s)

    return change


def compiling_every(interval: int):
    def change(done: StepDone) -> StepDone:
        is_new = done.step % interval == 0
        return replace(done, step_s=done.step_s + 0.06, compile_s=done.compile_s + 0.06) if is_new else done

    return change


RUNS = {
    "healthy small": ({"gpu_step": SMALL, "steps": 2000, "evaluate_every": 500}, set()),
    "healthy transformer-base": ({"gpu_step": BASE}, set()),
    "healthy modern": ({"gpu_step": H200_STEPS["modern"]}, set()),
    "healthy transformer-big": ({"gpu_step": H200_STEPS["transformer-big"]}, set()),
    "healthy at the default batch": (
        {"gpu_step": replace(BASE, tokens=8192, compute_s=0.0092, optimizer_s=0.0019, host_s=0.0006)},
        set(),
    ),
    "short, mostly compiling": ({"gpu_step": SMALL, "steps": 60, "compile_s": 40.0, "evaluate_every": 30}, set()),
    "a few sizes, captured late": (
        {
            "gpu_step": SMALL,
            "steps": 100,
            "change": lambda done: replace(done, step_s=0.4, compile_s=0.39) if done.step in (20, 41, 42, 60) else done,
        },
        set(),
    ),
    "host-bound between launches, but not most of the time": ({"gpu_step": replace(SMALL, host_s=0.003)}, set()),
    "power cap": ({"gpu_step": BASE, "readings": {"clock_mhz": 1600.0, "throttled": ["power cap"]}}, set()),
    "idle neighbour": ({"gpu_step": BASE, "readings": HOG}, set()),
    "hidden processes": ({"gpu_step": BASE, "readings": HIDDEN}, set()),
    "idle GPU while data is loaded": (
        {"gpu_step": replace(SMALL, data_s=0.05), "readings": {"use": 0.1, "clock_mhz": 345.0}},
        {"input"},
    ),
    "input-bound": ({"gpu_step": replace(BASE, data_s=0.02)}, {"input"}),
    "one CPU: everything is late": ({"gpu_step": replace(SMALL, data_s=0.01, host_s=0.03)}, {"input"}),
    "launch-bound": ({"gpu_step": H200_STEPS["tiny"]}, {"launches"}),
    "launch-bound with few tokens": ({"gpu_step": replace(H200_STEPS["tiny"], tokens=800)}, {"launches"}),
    "small batch, big": ({"gpu_step": H200_STEPS["transformer-big, small batch"]}, {"small-batch"}),
    "small batch, base": ({"gpu_step": H200_STEPS["transformer-base, small batch"]}, {"small-batch"}),
    "small micro-batches": (
        {
            "gpu_step": replace(H200_STEPS["transformer-big"], compute_s=0.25),
            "change": lambda done: replace(done, micro_batches=60),
        },
        {"small-batch"},
    ),
    "another process": ({"gpu_step": BASE, "readings": {**HOG, "other_use": 0.45}, "peak": 400e12}, {"shared-gpu"}),
    "another process, its use unknown": (
        {"gpu_step": BASE, "readings": {**HOG, "other_use": None}, "peak": 400e12},
        {"shared-gpu"},
    ),
    "another process, hidden": ({"gpu_step": BASE, "readings": HIDDEN, "peak": 400e12}, {"shared-gpu"}),
    "another process, hidden, from the middle on": (
        {"gpu_step": BASE, "readings": HIDDEN, "change": slower_from(300)},
        {"shared-gpu"},
    ),
    "clocks locked": (
        {"gpu_step": replace(BASE, compute_s=0.07), "readings": {"clock_mhz": 600.0}, "peak": 250e12},
        {"throttled"},
    ),
    "hot": ({"gpu_step": BASE, "readings": {"throttled": ["heat"], "temperature_c": 90.0}}, {"throttled"}),
    "checkpoint-bound": ({"gpu_step": replace(BASE, stall_s=1.0), "evaluate_every": 60}, {"checkpoint-stalls"}),
    "evaluation-bound, with slow checkpoints": (
        {"gpu_step": replace(BASE, stall_s=0.4), "evaluate_every": 50},
        {"evaluation"},
    ),
    "evaluation-bound": ({"gpu_step": BASE, "evaluate_every": 50}, {"evaluation"}),
    "evaluation-bound after long compiling": (
        {"gpu_step": BASE, "evaluate_every": 50, "compile_s": 60.0},
        {"evaluation"},
    ),
    "recompiling": ({"gpu_step": SMALL, "change": compiling_every(3)}, {"compiling"}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_each_kind_of_run_on_a_gpu_gets_its_own_warning_and_no_other(kind):
    changes, expected = RUNS[kind]
    history = build_history(gpu_run(**changes))
    assert warnings(history) == expected
    for answer in diagnose(history):
        assert answer.remedy
        assert answer.evidence


def test_stalls_by_checkpoints_of_evaluations_are_due_to_the_evaluations():
    [stalls] = diagnose(build_history(gpu_run(replace(BASE, stall_s=1.0), evaluate_every=60)))
    assert "evaluation.every" in stalls.remedy
    [evaluations] = diagnose(build_history(gpu_run(replace(BASE, stall_s=0.4), evaluate_every=50)))
    assert "checkpoints of evaluations stalled" in evaluations.evidence[-1]


@settings(max_examples=25)
@given(
    st.sampled_from(["small", "transformer-base", "modern", "transformer-big"]),
    st.floats(0.9, 1.3), st.floats(0, 0.1), st.floats(0, 0.05), st.integers(1, 1500), st.floats(0, 60),
    st.floats(0.75, 1.0), st.floats(0.7, 0.85), st.booleans(),
)  # fmt: skip
def test_healthy_runs_of_any_length_and_speed_on_a_gpu_get_no_warning(
    recipe, slowness, host, data, steps, compile_s, clock, peak, is_hidden
):
    gpu_step = H200_STEPS[recipe]
    slower = replace(
        gpu_step,
        compute_s=gpu_step.compute_s * slowness,
        host_s=gpu_step.host_s + host * gpu_step.step_s,
        data_s=data * gpu_step.step_s,
    )
    readings = {"clock_mhz": clock * 1980, "throttled": ["power cap"], **(HIDDEN if is_hidden else {})}
    history = build_history(
        gpu_run(slower, steps, readings=readings, peak=peak * 989e12, compile_s=compile_s, evaluate_every=500)
    )
    assert warnings(history) == set()
    assert len(answer_all(history)) == 11


def test_logs_of_older_versions_get_no_diagnosis_from_what_they_lack():
    new = ("memory_use", "max_clock_mhz", "own_processes", "other_processes", "other_memory_bytes", "other_use")
    recorded = [
        replace(event, gpus=[{key: value for key, value in gpu.items() if key not in new} for gpu in event.gpus])
        if isinstance(event, HostSampled)
        else event
        for event in gpu_run(BASE, peak=400e12, change=slower_from(300))
    ]
    assert warnings(build_history(recorded)) == set()


def test_readings_from_before_the_first_step_do_not_count():
    recorded = gpu_run(BASE, 1200, compile_s=20.0)
    first = next(event for event in recorded if isinstance(event, HostSampled))
    compiling = replace(first, gpus=[{**first.gpus[0], **HOG, "other_use": 1.0}])
    history = build_history([compiling if event is first else event for event in recorded])
    assert warnings(history) == set()


def test_the_processes_on_gpus_of_others_do_not_count():
    recorded = gpu_run(BASE)
    busy = {"index": 1, "own_processes": 0, "other_processes": 2, "other_use": 0.9, "clock_mhz": 300.0}
    both = [
        replace(event, gpus=[*event.gpus, {**event.gpus[0], **busy}]) if isinstance(event, HostSampled) else event
        for event in recorded
    ]
    assert warnings(build_history(both)) == set()


def test_workers_of_the_run_that_share_a_gpu_are_no_other_process():
    changes = {"readings": HIDDEN, "peak": 400e12}
    recorded = [
        replace(event, workers=["worker 0 on a", "worker 1 on a"]) if isinstance(event, RunStarted) else event
        for event in gpu_run(BASE, **changes)
    ]
    assert warnings(build_history(recorded)) == set()
    assert warnings(build_history(gpu_run(BASE, **changes))) == {"shared-gpu"}


def test_the_remedy_for_a_small_batch_names_a_size_that_is_not_small():
    gpu_step = H200_STEPS["transformer-big, small batch"]
    found = diagnosis(build_history(gpu_run(gpu_step)), "small-batch")
    tokens = int(found.remedy.split()[3].replace(",", ""))
    assert found.remedy.startswith("Raise batch.tokens to ")
    assert warnings(build_history(gpu_run(replace(gpu_step, tokens=tokens)))) == set()


@pytest.mark.parametrize(
    ("reading", "remedy"),
    [({"io_wait": 0.1}, "disk is slow"), ({"cpu_use": 0.97}, "All cores are busy"), ({}, "Neither its cores nor")],
)
def test_data_wait_is_explained_by_disks_or_cores_if_they_are_busy(reading, remedy):
    recorded = [
        replace(event, **reading) if isinstance(event, HostSampled) else event
        for event in gpu_run(replace(BASE, data_s=0.02))
    ]
    assert remedy in diagnosis(build_history(recorded), "input").remedy


def test_a_jump_of_compute_times_needs_a_gpu_that_is_kept_busy():
    steps = build_history(gpu_run(BASE, change=slower_from(300))).steady_steps
    assert compute_jump(steps) == pytest.approx(2, rel=0.1)
    assert compute_jump([replace(step, step_s=2 * step.step_s) for step in steps]) == 1.0
    assert compute_jump(steps[:40]) == 1.0
