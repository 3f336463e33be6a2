"""Event sync: every worker's events reach every machine's run folder, so that any of them can show the whole run.

Machines without a shared file system have logs of their own. Every few seconds all workers exchange the events recorded
since, thinned to what a page shows, and one worker on each file system writes what its logs lack. A lost machine loses
only its last seconds.
"""

import threading
import time
import zlib
from collections.abc import Sequence

from dragoman.distributed.cluster import Cluster
from dragoman.event_log import EventLog
from dragoman.events import EvaluationDone, Event, StepDone, to_json
from dragoman.run_folder import RunFolder

EVERY_S = 10.0


class EventSync:
    """One worker's queue of events, and its part in the exchange."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._queue: list[Event] = []
        self._last_step: StepDone | None = None
        self._synced_at = time.monotonic()

    def add(self, event: Event) -> None:
        """Queue an event, from any thread. Evaluations are equal on all workers, and of steps the last one suffices."""
        with self._lock:
            if isinstance(event, StepDone):
                self._last_step = event
            elif not isinstance(event, EvaluationDone):
                self._queue.append(event)

    @property
    def due(self) -> bool:
        return time.monotonic() - self._synced_at > EVERY_S

    def sync(self, cluster: Cluster, storage: Sequence[int]) -> None:
        """Exchange all queued events. All workers call this together, with the result of `find_shared_storage`."""
        with self._lock:
            queued = list(self._queue)
            last = [self._last_step] if self._last_step is not None else []
        if len(set(storage)) > 1:
            message = zlib.compress("".join(f"{to_json(event)}\n" for event in [*queued, *last]).encode())
            for rank, received in enumerate(cluster.all_gather_bytes(message)):
                if storage[cluster.rank] == cluster.rank != storage[rank]:
                    self._write(cluster.members[rank].worker, zlib.decompress(received))
        with self._lock:
            del self._queue[: len(queued)]
            if last and self._last_step is last[0]:
                self._last_step = None
        self._synced_at = time.monotonic()

    def _write(self, worker: int, lines: bytes) -> None:
        log = EventLog(self._run.events_of(worker))
        log.write(lines)
        log.close()
