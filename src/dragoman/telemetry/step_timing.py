"""Where the time of a step goes. Each second of a worker counts in exactly one part: the parts sum to the whole.

A worker waits for its batch (data), runs it through the model (compute), exchanges gradients, and updates the weights.
What is no part of a step stands apart: evaluations, checkpoints, meetings in a changed world.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["data", "compute", "exchange", "update", "apart"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Split:
    """One step's wall time, and its parts."""

    step_s: float
    data_s: float
    communication_s: float
    straggler_s: float
    optimizer_s: float


class StepTimer:
    """A clock with several dials, of which one runs at any moment."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spent_s: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._part: Part = "apart"
        self._entered_at = clock()
        self._own_s = 0.0
        """Time since this worker was last ready to exchange, without the exchanges."""

    def enter(self, part: Part) -> None:
        """From now on time belongs to this part."""
        self._turn()
        if self._part == "compute" and part == "exchange":
            self._own_s = 0.0
        self._part = part

    def ready_s(self, compute_s: float) -> float:
        """Asked while computing: how long it took to become ready. Computing counts by the device's own time."""
        return self._own_s + compute_s

    def take(self) -> dict[Part, float]:
        """The seconds of each part since this was last called."""
        self._turn()
        spent_s, self._spent_s = self._spent_s, dict.fromkeys(PARTS, 0.0)
        return spent_s

    def _turn(self) -> None:
        now = self._clock()
        self._spent_s[self._part] += now - self._entered_at
        if self._part != "exchange":
            self._own_s += now - self._entered_at
        self._entered_at = now


def split(spent_s: dict[Part, float], compute_s: float, straggler_s: float) -> Split:
    """The parts of a step, from this worker's clock, its device's time, and how much later the last worker was ready.

    A GPU computes behind Python's back: what Python spends waiting for it in later parts is computing, not waiting.
    """
    not_computing_s = max(0.0, spent_s["compute"] + spent_s["exchange"] + spent_s["update"] - compute_s)
    communication_s = min(spent_s["exchange"], not_computing_s)
    return Split(
        step_s=sum(spent_s.values()) - spent_s["apart"],
        data_s=spent_s["data"],
        communication_s=communication_s,
        straggler_s=min(communication_s, straggler_s),
        optimizer_s=not_computing_s - communication_s,
    )
