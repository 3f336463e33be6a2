"""Time that torch spends compiling. Compiling again and again means that shapes change that should be static."""

import sys
import time


class CompileTimer:
    """Sums the compile time of this process. Create it after the calls to `torch.compile`."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._started_at = 0.0
        if "torch._dynamo" in sys.modules:  # Otherwise nothing compiles here, and the import takes seconds.
            from torch._dynamo.callback import callback_handler

            callback_handler.register_start_callback(self._start)
            callback_handler.register_end_callback(self._stop)

    def take(self) -> float:
        """Seconds of compiling since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _start(self, _: object) -> None:
        self._started_at = time.perf_counter()

    def _stop(self, _: object) -> None:
        self._spent_s += time.perf_counter() - self._started_at
