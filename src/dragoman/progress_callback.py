"""The callback through which long-running functions report progress."""

from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Called repeatedly with the units done so far; `total` is None if unknown."""

    def __call__(self, task: str, done: int, total: int | None) -> None: ...


@runtime_checkable
class NotedProgress(Progress, Protocol):
    """A callback that also shows some sentences about the present task."""

    def note(self, text: str) -> None: ...


def no_progress(task: str, done: int, total: int | None) -> None:
    """Ignore progress."""
