"""Stopping a run: the first signal ends the step and saves; a second Ctrl-C exits at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_AT_ONCE = 130
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def handling(handle: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals while entered, except those that are ignored: `nohup` and a shell's `&` ask for that."""
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    earlier = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


class StopSignal:
    """Handles stop signals: `requested` is True after the first one."""

    def __init__(self) -> None:
        self.requested = False
        self._interrupts = 0

    def handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (signature of a signal handler)
        self.requested = True
        # SIGTERM is not counted: an agent that stops its workers sends it after the terminal has sent SIGINT.
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            os._exit(EXIT_AT_ONCE)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGTERM, SIGINT and SIGHUP during a run."""
        with handling(self.handle, *STOP_SIGNALS):
            yield
