"""Breakdown of step time: the parts that a step's wall time goes into, as answers and charts show them."""

from collections.abc import Callable, Sequence
from statistics import fmean

from dragoman.events import Event, StepDone
from dragoman.insight.run_history import RunHistory

NOTICEABLE_WAIT = 0.10
"""Part of step time from which a wait is reported."""
BOTTLENECK_WAIT = 0.25
"""Part of step time from which a wait is the bottleneck."""
SPEED_WINDOW_STEPS = 1000
"""Latest steps that statements about speed are based on."""
MIN_SPEED_STEPS = 10
"""Steps that a statement about speed needs."""
NOT_MEASURED = f"needs {MIN_SPEED_STEPS} steps with measured parts, after the first steps of a session"


def exposed_data_wait_s(step: StepDone) -> float:
    """Data wait that delayed the step. In older logs a GPU may have computed while Python waited for a batch."""
    return min(step.data_s, max(0.0, step.step_s - step.compute_s))


def separate_compile_s(step: StepDone) -> float:
    """Compile time that no other part contains. In older logs the others contain all of it, and sum to the step."""
    waits_s = step.straggler_s + step.communication_s + step.host_s
    others_s = step.compute_s + step.optimizer_s + step.data_s + waits_s
    return min(step.compile_s, max(0.0, step.step_s - others_s))


STEP_PARTS: dict[str, Callable[[StepDone], float]] = {
    "compute": lambda step: step.compute_s,
    "optimizer update": lambda step: step.optimizer_s,
    "data wait": exposed_data_wait_s,
    "straggler wait": lambda step: step.straggler_s,
    "communication": lambda step: step.communication_s,
    "host-bound": lambda step: step.host_s,
    "compile": separate_compile_s,
}
"""Parts of a step in seconds, in the order in which charts stack them."""


def mean_of(steps: Sequence[Event], field: str) -> float:
    """Mean of a field over events, such as steps."""
    return fmean(getattr(step, field) for step in steps) if steps else 0.0


def mean_part_s(steps: Sequence[StepDone], part: str) -> float:
    """Mean seconds of one part."""
    return fmean(map(STEP_PARTS[part], steps)) if steps else 0.0


def measured_steps(history: RunHistory) -> list[StepDone]:
    """Steps for statements about speed: none if there are too few, or if their parts were not measured."""
    steps = history.steady_steps[-SPEED_WINDOW_STEPS:]
    return steps if len(steps) >= MIN_SPEED_STEPS and mean_of(steps, "compute_s") > 0 else []


def time_after_compiling(history: RunHistory) -> float:
    """Wall time of all sessions without the compiling in their steps, which is most of a short run on a GPU."""
    return max(0.0, history.elapsed_s - sum(map(separate_compile_s, history.steps)))
