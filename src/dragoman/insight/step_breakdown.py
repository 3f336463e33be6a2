"""Breakdown of step time: the parts that a step's wall time goes into, as answers and charts show them."""

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from math import fsum

from dragoman.events import Event, StepDone, StepsSummed
from dragoman.insight.run_history import RunHistory
from dragoman.step_sums import add_counts, exposed_data_wait_s, separate_compile_s

NOTICEABLE_WAIT = 0.10
"""Part of step time from which a wait is reported."""
BOTTLENECK_WAIT = 0.25
"""Part of step time from which a wait is the bottleneck."""
SPEED_WINDOW_STEPS = 1000
"""Latest steps that statements about speed are based on."""
MIN_SPEED_STEPS = 10
"""Steps that a statement about speed needs."""
NOT_MEASURED = f"needs {MIN_SPEED_STEPS} steps with measured parts, after the first steps of a session"


Steps = Sequence[StepDone] | Sequence[StepsSummed]
"""Single steps, or sums over steps."""
STEP_PARTS: dict[str, Callable[[StepDone | StepsSummed], float]] = {
    "compute": lambda step: step.compute_s,
    "optimizer update": lambda step: step.optimizer_s,
    "data wait": lambda step: step.data_s if isinstance(step, StepsSummed) else exposed_data_wait_s(step),
    "straggler wait": lambda step: step.straggler_s,
    "communication": lambda step: step.communication_s,
    "host-bound": lambda step: step.host_s,
    "compile": lambda step: step.compile_s if isinstance(step, StepsSummed) else separate_compile_s(step),
}
"""Parts of a step in seconds, in the order in which charts stack them."""


def count_steps(steps: Sequence[Event]) -> int:
    return sum(step.steps if isinstance(step, StepsSummed) else 1 for step in steps)


def mean_of(steps: Sequence[Event], field: str) -> float:
    """Mean of a field over events: steps, sums of steps, or others."""
    return fsum(getattr(step, field) for step in steps) / count_steps(steps) if steps else 0.0


def mean_part_s(steps: Steps, part: str) -> float:
    """Mean seconds of one part."""
    return fsum(map(STEP_PARTS[part], steps)) / count_steps(steps) if steps else 0.0


def median_step_s(spans: Sequence[StepsSummed]) -> float:
    """Median of the step times, with three significant digits."""
    counts: dict[str, int] = {}
    for span in spans:
        counts = add_counts(counts, span.step_s_counts)
    times_s = sorted((float(step_s), count) for step_s, count in counts.items())
    middle = count_steps(spans) / 2
    below = accumulate(count for _, count in times_s)
    return next((step_s for (step_s, _), count in zip(times_s, below, strict=True) if count >= middle), 0.0)


def split_evenly(spans: Sequence[StepsSummed], size: int) -> list[list[StepsSummed]]:
    """Groups of neighbours with this number of steps each, as far as sums can be split; the last may have fewer."""
    starts = accumulate((span.steps for span in spans), initial=0)
    numbered = zip(starts, spans, strict=False)
    return [[span for _, span in group] for _, group in groupby(numbered, lambda item: item[0] // size)]


def measured_steps(history: RunHistory) -> list[StepDone]:
    """Steps for statements about speed: none if there are too few, or if their parts were not measured."""
    steps = history.steady_steps[-SPEED_WINDOW_STEPS:]
    return steps if len(steps) >= MIN_SPEED_STEPS and mean_of(steps, "compute_s") > 0 else []


def time_after_compiling(history: RunHistory) -> float:
    """Wall time of all sessions without the compiling in their steps, which is most of a short run on a GPU."""
    return max(0.0, history.elapsed_s - sum(map(STEP_PARTS["compile"], history.spans)))
