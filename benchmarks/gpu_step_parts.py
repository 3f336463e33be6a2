"""Parts of steps on a GPU against wall time: a section of `benchmarks.insight`.

Trains recipes on Multi30k as a user does. Needs one GPU and nothing else; takes about three minutes. All numbers are
from the log of the run: a step is measured by CUDA events, the wall time by the clock of the machine.
"""

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.command_line import run_dragoman
from benchmarks.corpora import prepare_multi30k
from benchmarks.reporting import Figure
from dragoman.events import (
    CheckpointSaved,
    CheckpointsAveraged,
    EvaluationDone,
    Event,
    RunStarted,
    StepDone,
)
from dragoman.insight.answers.step_time import answer_step_time
from dragoman.insight.run_history import read_history
from dragoman.run_folder import RunFolder
from dragoman.telemetry.remaining_time import WARM_UP_STEPS

PART_FIELDS = ("data_s", "compute_s", "compile_s", "communication_s", "straggler_s", "optimizer_s", "host_s")
RECIPES = ("small", "modern")
STEPS, EVALUATE_EVERY = 600, 200
SETTINGS = (f"training.steps={STEPS}", f"evaluation.every={EVALUATE_EVERY}", f"checkpoint.every={EVALUATE_EVERY}")
WINDOW_STEPS = 50
"""Steps are logged up to two steps late, so that only many of them can be compared with the clock."""


def measure_gpu_parts(corpora: Path) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_multi30k(Path(folder) / "data", "small", corpora).path
        for recipe in RECIPES:
            run = Path(folder) / recipe
            run_dragoman("train", recipe, "--data", data, "--out", run, *SETTINGS)
            yield from judge_parts(recipe, RunFolder(run).events())
            breakdown = answer_step_time(read_history(run)).evidence[0]
            yield Figure(f"{recipe}: parts of a step, as reported", breakdown, "sum 100 %", breakdown)


def judge_parts(recipe: str, events: Sequence[Event]) -> Iterator[Figure]:
    """Compare the parts of steps with the steps, and the steps with the clock."""
    steps = [event for event in events if isinstance(event, StepDone)]
    worst = max(abs(_parts_s(step) / step.step_s - 1) for step in steps)
    yield Figure(f"{recipe}: parts against each step, worst of {len(steps)}", f"{worst:.2%}", "within 2 %", worst)
    errors = list(window_errors(events))
    worst = max(errors, key=abs)
    text = f"{worst:+.2%} (median {statistics.median(errors):+.2%})"
    yield Figure(f"{recipe}: steps against the clock, worst {WINDOW_STEPS} steps", text, "within 2 %", worst)
    started_at = next(event.at_s for event in events if isinstance(event, RunStarted))
    # Until the last evaluation: after it, a run waits for its last checkpoint to be written.
    ended_at = max(event.at_s for event in events if isinstance(event, EvaluationDone))
    wall_s = ended_at - started_at
    outside_s = sum_outside_s([event for event in events if event.at_s <= ended_at])
    error = (sum(map(_parts_s, steps)) + outside_s) / wall_s - 1
    name = f"{recipe}: parts, evaluations and checkpoints against the run's wall time, {wall_s:.1f} s"
    yield Figure(name, f"{error:+.2%}", "within 2 %", error)
    compute_s = [step.compute_s for step in steps if step.step > WARM_UP_STEPS]
    ratio = max(compute_s) / statistics.median(compute_s)
    name = f"{recipe}: longest computing after {WARM_UP_STEPS} steps against the median"
    yield Figure(name, f"{ratio:.2f}", "under 3", ratio)
    compile_s = sum(step.compile_s for step in steps)
    yield Figure(f"{recipe}: compiling and capturing, told apart", f"{compile_s:.1f} s", "", compile_s)


def window_errors(events: Sequence[Event]) -> Iterator[float]:
    """Relative errors of the sums of successive steps against the clock, where nothing else happened in between.

    A step that compiles is so long that it matters when it is logged.
    """
    window: list[StepDone] = []
    for event in events:
        if isinstance(event, StepDone):
            window = [] if event.compile_s else [*window, event]
        elif isinstance(event, EvaluationDone | CheckpointSaved | RunStarted):
            window = []
        if len(window) > WINDOW_STEPS:
            yield sum(step.step_s for step in window[1:]) / (window[-1].at_s - window[0].at_s) - 1
            window = []


def sum_outside_s(events: Sequence[Event]) -> float:
    """Time of a run that belongs to no step."""
    total_s = sum(event.evaluation_s for event in events if isinstance(event, EvaluationDone))
    total_s += sum(event.stall_s for event in events if isinstance(event, CheckpointSaved))
    return total_s + sum(event.averaging_s for event in events if isinstance(event, CheckpointsAveraged))


def _parts_s(step: StepDone) -> float:
    return sum(float(getattr(step, field)) for field in PART_FIELDS)
