"""Losses of workers, each once, from what all workers recorded about them.

Every survivor records a loss. Some see only a broken connection, and in a static world a worker that exits because of a
loss is then missed by others. The next world shows who is really gone.
"""

from collections.abc import Sequence
from dataclasses import replace

from dragoman.events import Event, RunStarted, WorkersLost, WorldChanged


class LossTracker:
    """Takes the events of all workers in the order of time. Returns each loss when it is first certain."""

    def __init__(self) -> None:
        self.world: list[str] = []
        """The present workers by rank, such as `worker 1 on b`."""
        self._lost: set[str] = set()
        """Workers that are lost and have not come back."""
        self._reporters: set[int] = set()
        """Workers that have recorded a loss since the world was formed."""
        self._unexplained: WorkersLost | None = None
        """The first loss since the world was formed, while it is not certain who was lost."""

    def add(self, event: Event) -> WorkersLost | None:
        """The loss that an event makes known, with the workers that were not known to be lost before."""
        match event:
            case RunStarted() | WorldChanged() if event.workers != self.world:
                return self._change_world(event.workers)
            case WorkersLost():
                return self._report(event)
        return None

    def take_unexplained(self) -> WorkersLost | None:
        """A loss of which it was never known who was lost."""
        unexplained, self._unexplained = self._unexplained, None
        return unexplained

    def _change_world(self, workers: Sequence[str]) -> WorkersLost | None:
        gone = [worker for worker in self.world if worker not in workers and worker not in self._lost]
        unexplained = self.take_unexplained()
        self.world = list(workers)
        self._lost = (self._lost | set(gone)) - set(workers)
        self._reporters.clear()
        return replace(unexplained, workers=gone) if unexplained is not None and gone else None

    def _report(self, event: WorkersLost) -> WorkersLost | None:
        self._reporters.add(event.worker)
        new = [worker for worker in event.workers if worker_name(worker) not in self._lost]
        # One that has reported a loss itself may have exited because of it.
        certain = [worker for worker in new if int(worker.split()[1]) not in self._reporters]
        if certain:
            self._unexplained = None
            self._lost |= {worker_name(worker) for worker in certain}
            return replace(event, workers=certain)
        if not self._lost & set(self.world):
            self._unexplained = self._unexplained or event
        return None


def worker_name(description: str) -> str:
    """`worker 1 on b` of `worker 1 on b (step 40, computing)`."""
    return description.partition(" (")[0]
