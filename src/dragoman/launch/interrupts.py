"""Ctrl-C in a launcher: the first asks all workers to save and exit, a second exits at once."""

import signal
from types import FrameType

from dragoman.training.stop_signal import handling


class Interrupts:
    """Context manager that counts SIGINT and SIGTERM instead of raising."""

    def __init__(self) -> None:
        self._count = 0
        self._reported = False

    def __enter__(self) -> "Interrupts":
        self._handling = handling(self._take, signal.SIGINT, signal.SIGTERM)
        self._handling.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._handling.__exit__(None, None, None)

    @property
    def first_time(self) -> bool:
        """True once, after the first signal."""
        reported, self._reported = self._reported, self._count > 0
        return self._reported and not reported

    @property
    def leave_at_once(self) -> bool:
        return self._count > 1

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (the form of a signal handler)
        self._count += 1
