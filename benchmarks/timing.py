"""Wall-clock times of calls, and the time for which they block other threads."""

import statistics
import threading
import time
from collections.abc import Callable


def measure_s(work: Callable[[], object], device: str = "cpu") -> float:
    """Seconds of one call. On a GPU, from the end of earlier kernels to the end of the call's own."""
    _synchronize(device)
    started_at = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - started_at


def median_s(work: Callable[[], object], rounds: int, device: str = "cpu") -> float:
    return statistics.median(measure_s(work, device) for _ in range(rounds))


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        import torch  # Here, because some benchmarks measure the memory of a process without torch.

        torch.cuda.synchronize()


class GilMonitor:
    """Measures the longest time for which the block in a `with` statement keeps other threads from running.

    A thread wakes every few milliseconds, as a worker's heartbeat does. A busy machine lengthens its gaps too, so the
    result is an upper bound.
    """

    WAKE_S = 0.005

    def __enter__(self) -> "GilMonitor":
        self.longest_s = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        woke_at = time.perf_counter()
        while not self._done.wait(self.WAKE_S):
            before, woke_at = woke_at, time.perf_counter()
            self.longest_s = max(self.longest_s, woke_at - before)

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
