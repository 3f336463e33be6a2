"""How a run is asked to stop: the first signal ends the step and saves; a second Ctrl-C leaves at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_AT_ONCE = 130


class StopSignal:
    """Whether someone asked this worker to stop."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = 0

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the form of a signal handler)
        self.requested = True
        # Only Ctrl-C counts: an agent that stops its workers sends SIGTERM after the terminal has sent SIGINT.
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            os._exit(EXIT_AT_ONCE)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT for the time of a run."""
        earlier = {number: signal.signal(number, self.handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)
