"""Time in which collectives are under way, whatever the worker does meanwhile."""

import threading
import time
from collections.abc import Callable


class CommunicationClock:
    """A stopwatch that runs while at least one collective is under way. Threads of the network stop it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._under_way = 0
        self._since_s = 0.0
        self._ended_s = 0.0

    def start(self) -> None:
        """A collective begins."""
        with self._lock:
            if not self._under_way:
                self._since_s = self._clock()
            self._under_way += 1

    def stop(self) -> None:
        """A collective ends."""
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self._ended_s += self._clock() - self._since_s

    @property
    def elapsed_s(self) -> float:
        """Time until now."""
        with self._lock:
            return self._ended_s + (self._clock() - self._since_s if self._under_way else 0.0)
