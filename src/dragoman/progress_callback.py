"""The callback through which long-running functions report progress."""

from typing import Protocol


class Progress(Protocol):
    """Called repeatedly with the units done so far; `total` is None if unknown."""

    def __call__(self, task: str, done: int, total: int | None) -> None: ...


def no_progress(task: str, done: int, total: int | None) -> None:
    """Ignore progress."""
