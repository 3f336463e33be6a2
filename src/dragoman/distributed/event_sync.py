"""What each worker records reaches every machine's run folder, so that any of them can show the whole run.

Machines without a common file system have logs of their own. Every few seconds all workers exchange what they have
recorded since, thinned to what a page shows, and one worker on each disk writes down what its disk lacks. So a lost
machine takes nothing along but its last seconds.
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
    """One worker's outbox, and its part in the exchange."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._last_step: StepDone | None = None
        self._exchanged_at_s = time.monotonic()

    def add(self, event: Event) -> None:
        """Take in an event, from any thread. Evaluations are the same on all workers, and of steps the last will do."""
        with self._lock:
            if isinstance(event, StepDone):
                self._last_step = event
            elif not isinstance(event, EvaluationDone):
                self._waiting.append(event)

    @property
    def due(self) -> bool:
        return time.monotonic() - self._exchanged_at_s > EVERY_S

    def exchange(self, cluster: Cluster, disks: Sequence[int]) -> None:
        """Give everyone's news to everyone. All workers call this together, with `find_disks`' answer."""
        with self._lock:
            news = list(self._waiting)
            last = [self._last_step] if self._last_step is not None else []
        if len(set(disks)) > 1:
            letter = zlib.compress("".join(f"{to_json(event)}\n" for event in [*news, *last]).encode())
            for rank, received in enumerate(cluster.gather(letter)):
                if disks[cluster.rank] == cluster.rank != disks[rank]:
                    self._write(cluster.members[rank].worker, zlib.decompress(received))
        with self._lock:
            del self._waiting[: len(news)]
            if last and self._last_step is last[0]:
                self._last_step = None
        self._exchanged_at_s = time.monotonic()

    def _write(self, worker: int, lines: bytes) -> None:
        log = EventLog(self._run.events_of(worker))
        log.write(lines)
        log.close()
