"""Times a worker: each second counts in exactly one part of a step, so the parts sum up.

A CPU's time is that of Python. A GPU is behind Python: its time is taken from its own time line, and known later.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dragoman.telemetry.device_timeline import DeviceSpans, DeviceTimeline
from dragoman.telemetry.step_parts import PARTS, Part


@dataclass
class StepSpans:
    """The time between two calls of `StepTimer.take`, by part."""

    host_s: dict[Part, float]
    """By Python's clock."""
    overlapped_s: float = 0.0
    """Time in which collectives were under way while this worker did something else. It is no part."""
    on_device: DeviceSpans | None = None
    """By the time line of the GPU, if there is one."""

    @property
    def elapsed_s(self) -> float:
        return sum(self.host_s.values())

    def extend(self, following: "StepSpans") -> None:
        """Append the time that begins where this ends."""
        for part, seconds in following.host_s.items():
            self.host_s[part] += seconds
        self.overlapped_s += following.overlapped_s
        if self.on_device is not None and following.on_device is not None:
            self.on_device.extend(following.on_device)

    def read(self, *, alone: bool) -> dict[Part, float]:
        """Seconds of each part, on the device that computes. Waits for a GPU; call it once.

        `alone`: there is no other worker, so the time around the exchange is Python's own.
        """
        spent_s = dict(self.host_s) if self.on_device is None else self.on_device.read()
        if alone:
            _move_time(spent_s, "exchange", "host")
        if self.on_device is None:  # Python keeps a CPU as busy as the update that it follows: it is not idle.
            _move_time(spent_s, "host", "update")
        return spent_s


def _move_time(spent_s: dict[Part, float], origin: Part, to: Part) -> None:
    spent_s[to] += spent_s[origin]
    spent_s[origin] = 0.0


class StepTimer:
    """A stopwatch that assigns all time to the current part."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        timeline: DeviceTimeline | None = None,
        communication_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`communication_s`: the time so far in which collectives were under way."""
        self._clock, self._timeline, self._communication_s = clock, timeline, communication_s
        self._communication_until_s = communication_s()
        self._overlapped_s = 0.0
        self._spent_s: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._part: Part = "outside"
        self._entered_at = clock()
        self._own_s = 0.0
        """Time since this worker was last ready to exchange, without computing and exchanges."""
        self._own_until_ready_s = 0.0
        """The same, until it was last ready."""
        self._last_compute_s = 0.0
        self._compiling = 0
        self._interrupted: Part = "compute"
        """The part that compiling interrupts."""

    def enter(self, part: Part) -> None:
        """From now on, time belongs to this part."""
        self._add_elapsed()
        if self._part == "compute" and part == "exchange":
            self._own_until_ready_s, self._own_s = self._own_s, 0.0
        self._part = part
        if self._timeline is not None:
            self._timeline.enter(part)

    def start_compiling(self) -> None:
        """Until the matching `stop_compiling`, time counts as compile, unless it belongs to no step."""
        self._compiling += 1
        if self._compiling == 1 and self._part != "outside":
            self._interrupted = self._part
            self.enter("compile")

    def stop_compiling(self) -> None:
        self._compiling -= 1
        if self._compiling == 0 and self._part == "compile":
            self.enter(self._interrupted)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """The time of the block counts as compile."""
        self.start_compiling()
        try:
            yield
        finally:
            self.stop_compiling()

    @property
    def compute_s(self) -> float:
        """Compute time of the latest step of which it is known; 0 before.

        After a CPU has computed, it is that of the current step. For a GPU it is that of the step before, where several
        workers exchange gradients: a worker that is alone need not know it.
        """
        if self._timeline is not None:
            return self._timeline.last_compute_s
        return self._spent_s["compute"] or self._last_compute_s

    @property
    def ready_s(self) -> float:
        """Time this worker took to become ready to exchange. Valid in the exchange.

        Computing counts by device time: Python may be ahead of the device.
        """
        return self._own_until_ready_s + self.compute_s

    def take(self) -> StepSpans:
        """The time since the last call."""
        self._add_elapsed()
        self._last_compute_s = self._spent_s["compute"] or self._last_compute_s
        spent_s, self._spent_s = self._spent_s, dict.fromkeys(PARTS, 0.0)
        overlapped_s, self._overlapped_s = self._overlapped_s, 0.0
        return StepSpans(spent_s, overlapped_s, None if self._timeline is None else self._timeline.take())

    def _add_elapsed(self) -> None:
        now, communication_s = self._clock(), self._communication_s()
        self._spent_s[self._part] += now - self._entered_at
        if self._part not in ("exchange", "outside"):
            self._overlapped_s += communication_s - self._communication_until_s
        self._communication_until_s = communication_s
        if self._part not in ("compute", "exchange"):
            self._own_s += now - self._entered_at
        self._entered_at = now
