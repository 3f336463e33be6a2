"""Time that the device computes, measured without synchronising with it."""

import time

import torch


class DeviceTimer:
    """Measures spans of device time. On a GPU a span is known only after the device has reached its end."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._started_at = 0.0
        self._seconds = 0.0
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None

    def start(self) -> None:
        if self._on_gpu:
            self._seconds = self.seconds
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            self._events = (begin, end)
            self._events[0].record()
        else:
            self._started_at = time.perf_counter()

    def stop(self) -> None:
        if self._events is not None:
            self._events[1].record()
        else:
            self._seconds = time.perf_counter() - self._started_at

    @property
    def seconds(self) -> float:
        """The last completed span. On a GPU that may be the one before the last."""
        if self._events is not None and self._events[1].query():  # type: ignore[no-untyped-call]
            return float(self._events[0].elapsed_time(self._events[1])) / 1000
        return self._seconds
