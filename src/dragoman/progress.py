"""How long work tells how far it is, without knowing who listens."""

from typing import Protocol


class Progress(Protocol):
    """Told again and again how much of a task is done; the total is None where no one knows it."""

    def __call__(self, task: str, done: int, total: int | None) -> None: ...


def no_progress(task: str, done: int, total: int | None) -> None:
    """For those who do not listen."""
