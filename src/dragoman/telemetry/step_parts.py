"""The parts that the wall time of a step is split into.

A worker waits for its batch (data), computes gradients (compute), exchanges them (exchange), updates the weights
(update), and prepares the next step (host). The first passes of a size are compiled and captured (compile).
Evaluations, checkpoints and changes of the world belong to no step (outside).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["data", "compute", "compile", "exchange", "update", "host", "outside"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class StepTimes:
    """Wall time of one step, and its parts, which sum to it."""

    step_s: float
    data_s: float
    compute_s: float
    compile_s: float
    communication_s: float
    """Time in the exchange with all workers ready."""
    straggler_s: float
    optimizer_s: float
    host_s: float


def split_step(spent_s: Mapping[Part, float], straggler_s: float) -> StepTimes:
    """Split a step by the time of each part, and by how much later than this worker the last one was ready."""
    exchange_s = spent_s["exchange"]
    straggler_s = min(exchange_s, straggler_s)
    return StepTimes(
        step_s=sum(spent_s.values()) - spent_s["outside"],
        data_s=spent_s["data"],
        compute_s=spent_s["compute"],
        compile_s=spent_s["compile"],
        communication_s=exchange_s - straggler_s,
        straggler_s=straggler_s,
        optimizer_s=spent_s["update"],
        host_s=spent_s["host"],
    )
