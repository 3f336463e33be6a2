"""GPUs that a test simulates."""

import time

from dragoman.telemetry.device_timeline import DeviceTimeline
from dragoman.telemetry.step_timing import StepTimer


class FakeEvent:
    """An event in the stream of a fake GPU."""

    def __init__(self, gpu: "FakeGpu") -> None:
        self._gpu = gpu
        self._passed_at = float("inf")

    def record(self) -> None:
        self._passed_at = self._gpu.reaches_at

    def query(self) -> bool:
        return self._gpu.now >= self._passed_at

    def synchronize(self) -> None:
        self._gpu.now = max(self._gpu.now, self._passed_at)

    def elapsed_time(self, end_event: "FakeEvent") -> float:
        assert self.query(), "CUDA refuses to compare events that have not passed"
        assert end_event.query()
        return 1000 * (end_event._passed_at - self._passed_at)


class FakeGpu:
    """Works through what is launched, one kernel after the other, behind Python, whose clock the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        """Python's clock."""
        self.events = 0
        self._busy_until = 0.0
        self.timer = StepTimer(lambda: self.now, DeviceTimeline(self._make_event))

    @property
    def reaches_at(self) -> float:
        """The time at which the GPU reaches the present end of its stream."""
        return max(self.now, self._busy_until)

    def launch(self, kernel_s: float) -> None:
        self._busy_until = self.reaches_at + kernel_s

    def _make_event(self) -> FakeEvent:
        self.events += 1
        return FakeEvent(self)


class ClockEvent:
    """An event of a device that is never behind Python: a CPU that is timed as a GPU."""

    def record(self) -> None:
        self._passed_at = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: "ClockEvent") -> float:
        return 1000 * (end_event._passed_at - self._passed_at)
