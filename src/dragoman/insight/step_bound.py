"""The bound of a step: the one thing that limits its speed most."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dragoman.events import StepDone
from dragoman.insight.roofline import Roofline, estimate_roofline
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import mean_of, mean_part_s, measured_steps
from dragoman.number_format import percent

BoundKind = Literal[
    "arithmetic", "memory", "launches", "input", "communication", "straggler", "compiling", "computing"
]  # fmt: skip
MIN_EXPLAINED = 0.25
"""Part of a GPU's busy time that arithmetic and memory traffic must explain. Otherwise its kernels are too small."""


@dataclass(frozen=True)
class StepBound:
    """The limit of a step, and the reason for it in a clause."""

    kind: BoundKind
    """`computing` where arithmetic and memory cannot be distinguished: on a CPU, or on a GPU in no table."""
    share: float
    """Part of step time that it takes."""
    reason: str


def bound_of(history: RunHistory) -> StepBound | None:
    """What limits the latest steps; None if too few were measured."""
    steps = measured_steps(history)
    if not steps:
        return None
    step_s, late_s = mean_of(steps, "step_s"), launch_wait_s(history, steps)
    waits_s: dict[BoundKind, float] = {
        "input": mean_part_s(steps, "data wait"),
        "straggler": mean_part_s(steps, "straggler wait"),
        "communication": mean_part_s(steps, "communication"),
        "launches": late_s,
        "compiling": mean_part_s(steps, "compile"),
    }
    clauses: dict[BoundKind, str] = {
        "input": "waits for data",
        "straggler": "waits for the slowest worker",
        "communication": "waits for the exchange",
        "launches": "waits for Python, which starts kernels later than the GPU could run them,",
        "compiling": "waits for torch to compile",
    }
    longest = max(waits_s, key=lambda kind: waits_s[kind])
    busy_s = mean_part_s(steps, "compute") + mean_part_s(steps, "optimizer update") - _late_update_s(history, steps)
    if waits_s[longest] > busy_s:
        share = waits_s[longest] / step_s
        return StepBound(longest, share, f"it {clauses[longest]} for {percent(share)} of the step")
    return _bound_of_work(estimate_roofline(history, steps), busy_s, step_s)


def launch_wait_s(history: RunHistory, steps: Sequence[StepDone]) -> float:
    """Time of a mean step in which a GPU waits for Python: between steps, and in the optimizer update.

    The passes are CUDA graphs, but the kernels of the update are launched one by one. What the update takes longer than
    its traffic and arithmetic need is such a wait.
    """
    return mean_part_s(steps, "host-bound") + _late_update_s(history, steps)


def _late_update_s(history: RunHistory, steps: Sequence[StepDone]) -> float:
    if history.started.device == "CPU" or (roofline := estimate_roofline(history, steps)) is None:
        return 0.0
    return max(0.0, mean_part_s(steps, "optimizer update") - roofline.update_s)


def _bound_of_work(roofline: Roofline | None, busy_s: float, step_s: float) -> StepBound:
    share = busy_s / step_s
    if roofline is None:
        return StepBound("computing", share, f"computing takes {percent(share)} of the step")
    needs = (
        f"of {1000 * busy_s:.1f} ms of work a step, arithmetic at peak would take {1000 * roofline.arithmetic_s:.1f} "
        f"ms, and memory traffic about {1000 * roofline.memory_s:.1f} ms"
    )
    if roofline.arithmetic_s + roofline.memory_s < MIN_EXPLAINED * busy_s:
        return StepBound("launches", share, f"{needs}: the rest is the start of many small kernels")
    kind: BoundKind = "arithmetic" if roofline.arithmetic_s >= roofline.memory_s else "memory"
    return StepBound(kind, share, needs)
