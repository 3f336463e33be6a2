"""Wall-clock times of calls."""

import statistics
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
