"""How long torch compiles. Where it compiles again and again, shapes change that should not."""

import sys
import time


class CompileTimer:
    """Adds up the time that this process spends compiling. Make it after whatever is to be compiled was marked so."""

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._started_at = 0.0
        if "torch._dynamo" in sys.modules:  # Else nothing here compiles, and importing it takes seconds.
            from torch._dynamo.callback import callback_handler

            callback_handler.register_start_callback(self._start)
            callback_handler.register_end_callback(self._stop)

    def take(self) -> float:
        """The seconds since this was last called."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _start(self, _: object) -> None:
        self._started_at = time.perf_counter()

    def _stop(self, _: object) -> None:
        self._spent_s += time.perf_counter() - self._started_at
