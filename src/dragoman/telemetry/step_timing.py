"""Wall time of a step, split into parts. Each second of a worker counts in exactly one part, so the parts sum up.

A worker waits for its batch (data), computes gradients (compute), exchanges them (exchange) and updates the weights
(update). Evaluations, checkpoints and changes of the world belong to no step (outside).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["data", "compute", "exchange", "update", "outside"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class StepTimes:
    """Wall time of one step and its parts, without the compute time that the device reports."""

    step_s: float
    data_s: float
    communication_s: float
    """Time in the exchange with all workers ready."""
    straggler_s: float
    optimizer_s: float


class StepTimer:
    """A stopwatch that assigns all time to the current part."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent_s: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._part: Part = "outside"
        self._entered_at = clock()
        self._own_s = 0.0
        """Time since this worker was last ready to exchange, without the exchanges."""

    def enter(self, part: Part) -> None:
        """From now on, time belongs to this part."""
        self._add_elapsed()
        if self._part == "compute" and part == "exchange":
            self._own_s = 0.0
        self._part = part

    def ready_s(self, compute_s: float) -> float:
        """Time this worker took to become ready to exchange. Call it at the end of the compute part.

        The current step's computing counts by device time: Python may be ahead of the device.
        """
        return self._own_s + compute_s

    def take(self) -> dict[Part, float]:
        """Seconds of each part since the last call."""
        self._add_elapsed()
        spent_s, self._spent_s = self._spent_s, dict.fromkeys(PARTS, 0.0)
        return spent_s

    def _add_elapsed(self) -> None:
        now = self._clock()
        self._spent_s[self._part] += now - self._entered_at
        if self._part != "exchange":
            self._own_s += now - self._entered_at
        self._entered_at = now


def split_step(spent_s: dict[Part, float], compute_s: float, straggler_s: float) -> StepTimes:
    """Split a step by this worker's clock, its device's compute time, and how much later the last worker was ready.

    A GPU computes asynchronously: while Python waits for it in a later part, the time counts as compute.
    """
    not_computing_s = max(0.0, spent_s["compute"] + spent_s["exchange"] + spent_s["update"] - compute_s)
    exchange_s = min(spent_s["exchange"], not_computing_s)
    straggler_s = min(exchange_s, straggler_s)
    return StepTimes(
        step_s=sum(spent_s.values()) - spent_s["outside"],
        data_s=spent_s["data"],
        communication_s=exchange_s - straggler_s,
        straggler_s=straggler_s,
        optimizer_s=not_computing_s - exchange_s,
    )
