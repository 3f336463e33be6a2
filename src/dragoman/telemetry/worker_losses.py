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
        self._last_report: WorkersLost | None = None
        """The last loss that was recorded since the world was formed."""

    def add(self, event: Event) -> WorkersLost | None:
        """The loss that an event makes known, with the workers that were not known to be lost before."""
        match event:
            case RunStarted() | WorldChanged() if event.workers != self.world:
                return self._change_world(event.workers)
            case RunStarted() | WorldChanged():
                self._forget_report_of(event.worker)
            case WorkersLost():
                return self._report(event)
        return None

    @property
    def unexplained(self) -> WorkersLost | None:
        """The last loss, if it is not known who was lost."""
        return None if self._lost & set(self.world) else self._last_report

    def _change_world(self, workers: Sequence[str]) -> WorkersLost | None:
        gone = [worker for worker in self.world if worker not in workers and worker not in self._lost]
        report, self._last_report = self._last_report, None
        self._reporters.clear()
        self.world = list(workers)
        self._lost = (self._lost | set(gone)) - set(workers)
        return replace(report, workers=gone) if report is not None and gone else None

    def _forget_report_of(self, worker: int) -> None:
        """Forget a loss that was recorded before the present world was formed, by a clock that is ahead."""
        self._reporters.discard(worker)
        if self._last_report is not None and self._last_report.worker == worker:
            self._last_report = None

    def _report(self, event: WorkersLost) -> WorkersLost | None:
        self._reporters.add(event.worker)
        self._last_report = event
        # One that has reported a loss itself may have exited because of it.
        certain = [
            worker
            for worker in event.workers
            if worker_name(worker) not in self._lost and int(worker.split()[1]) not in self._reporters
        ]
        self._lost |= {worker_name(worker) for worker in certain}
        return replace(event, workers=certain) if certain else None


def worker_name(description: str) -> str:
    """`worker 1 on b` of `worker 1 on b (step 40, computing)`."""
    return description.partition(" (")[0]
