"""Event sync: every worker's events are copied to every machine's run folder, so that any of them can show the run.

Machines without a shared file system have event logs of their own. Every few seconds all workers exchange the events
recorded since then, of steps only the last, and one worker on each file system writes the events of the others. In a
new world they compare all events that they know, and each folder gets those that it missed: a machine that comes back,
or becomes the first one, has the whole run. What a machine did not send before it was lost is known only there.
"""

import contextlib
import hashlib
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import Member, WorkersLostError
from dragoman.event_json import event_name, from_json, to_json
from dragoman.event_log import EventLog
from dragoman.events import EvaluationDone, Event, HostSampled, RunEnded, RunStarted, StepDone, StepsSummed
from dragoman.run_folder import RunFolder

EVERY_S = 10.0
FREQUENT = (StepDone, StepsSummed, HostSampled)
"""Events that are too many to be sent to machines that missed them."""
ID_BYTES = 8


class EventSync:
    """What one worker knows of the run, its queue of new events, and its part in the exchange."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._queue: list[Event] = []
        self._last_step: StepDone | None = None
        self._known: dict[bytes, Event] = {}
        """All events of the run that are known here, except for the frequent ones."""
        self._missed_evaluations: list[EvaluationDone] = []
        self._synced_at = time.monotonic()
        self.session_at_s = 0.0
        """When the first workers of this session started; the same for all workers. 0 before the first world."""
        self.leads_folder = False
        """True if this worker writes for all workers on its file system."""
        self._logs: dict[int, EventLog] = {}
        """Logs of workers on other machines."""
        self._read_logs(world=())

    def add(self, event: Event) -> None:
        """Queue an event, from any thread. Of steps, only the last is kept."""
        with self._lock:
            if isinstance(event, StepDone):
                self._last_step = event
            else:
                self._queue.append(event)
            if not isinstance(event, FREQUENT):
                self._known[event_id(event)] = event

    @property
    def due(self) -> bool:
        return time.monotonic() - self._synced_at > EVERY_S

    def join_world(self, cluster: Cluster, storage: Sequence[int]) -> bool:
        """Give each folder of a new world the events that it lacks. True if this is the worker's first world.

        All workers call this together, with the result of `find_shared_storage`.
        """
        starts = cluster.all_gather_json([self.session_at_s, time.time()])
        self.leads_folder = storage[cluster.rank] == cluster.rank
        if len(set(storage)) > 1:
            self._catch_up(cluster, storage)
        is_first = not self.session_at_s
        self.session_at_s = next((session_at_s for session_at_s, _ in starts if session_at_s), starts[0][1])
        return is_first

    def _catch_up(self, cluster: Cluster, storage: Sequence[int]) -> None:
        """Send the events that others lack, and write those that this folder lacks."""
        if self.leads_folder:
            self._read_logs(world=cluster.members)
        with self._lock:
            own = dict(self._known)
        known = [_split_ids(ids) for ids in cluster.all_gather_bytes(b"".join(own))]
        # Of those that know an event, the first sends it.
        sent = own.keys() - set.intersection(*known) - set[bytes]().union(*known[: cluster.rank])
        here = set[bytes]().union(*(ids for rank, ids in enumerate(known) if storage[rank] == storage[cluster.rank]))
        messages = cluster.all_gather_bytes(_pack(own[each] for each in sent))
        received = [event for message in messages for event in self._receive(message)]
        if self.leads_folder:
            # The steps of workers that write here are in their logs already: only others' steps may be missing.
            writers = {
                member.worker for member, leader in zip(cluster.members, storage, strict=True) if leader == cluster.rank
            }
            lacking = [event for event in received if event_id(event) not in here]
            self._write(event for event in lacking if not (isinstance(event, StepDone) and event.worker in writers))
            evaluated = {event.step for event in own.values() if isinstance(event, EvaluationDone)}
            missed = {event.step: event for event in received if isinstance(event, EvaluationDone)}
            self._missed_evaluations += [missed[step] for step in sorted(missed.keys() - evaluated)]

    def sync(self, cluster: Cluster, storage: Sequence[int]) -> None:
        """Exchange all queued events. All workers call this together, with the result of `find_shared_storage`."""
        with self._lock:
            queued = list(self._queue)
            last = [self._last_step] if self._last_step is not None else []
        if len(set(storage)) > 1:
            for rank, message in enumerate(cluster.all_gather_bytes(_pack([*queued, *last]))):
                received = self._receive(message, forgotten=FREQUENT)
                if storage[cluster.rank] == cluster.rank != storage[rank]:
                    self._write(received)
        with self._lock:
            del self._queue[: len(queued)]
            if last and self._last_step is last[0]:
                self._last_step = None
        self._synced_at = time.monotonic()

    def end(self, cluster: Cluster, storage: Sequence[int], ended: RunEnded) -> RunEnded:
        """Exchange the last events. Returns the end of the run with the times of the first worker.

        All workers record the same end, so that every folder shows the same duration.
        """
        with contextlib.suppress(WorkersLostError):
            at_s, elapsed_s = cluster.broadcast_json([ended.at_s, ended.elapsed_s])
            ended = replace(ended, at_s=at_s, elapsed_s=elapsed_s)
            self.sync(cluster, storage)
        return ended

    def take_missed_evaluations(self) -> list[EvaluationDone]:
        """Evaluations that this folder did not have when the world was formed, by step. Each is returned once."""
        missed, self._missed_evaluations = self._missed_evaluations, []
        return missed

    def _read_logs(self, world: Sequence[Member]) -> None:
        """Learn what workers that are not in a world have recorded in this folder, and may not have sent."""
        present = {self._run.events_of(member.worker) for member in world}
        found = [event for log in self._run.event_logs() if log not in present for event in _read_infrequent(log)]
        with self._lock:
            self._known |= {event_id(event): event for event in found}

    def _receive(self, message: bytes, forgotten: tuple[type[Event], ...] = ()) -> list[Event]:
        """The events of a message that are new here. They are known from now on, except for those to be forgotten."""
        parsed = [from_json(line) for line in zlib.decompress(message).split(b"\n")]
        # The number of the worker becomes part of a file name.
        received = {event_id(event): event for event in parsed if event is not None and isinstance(event.worker, int)}
        with self._lock:
            new = {each: event for each, event in received.items() if each not in self._known}
            self._known |= {each: event for each, event in new.items() if not isinstance(event, forgotten)}
        return list(new.values())

    def _write(self, received: Iterable[Event]) -> None:
        ordered = sorted(received, key=lambda event: (event.worker, event.at_s))
        for worker, events in groupby(ordered, lambda event: event.worker):
            if worker not in self._logs:
                self._logs[worker] = EventLog(self._run.events_of(worker))
            self._logs[worker].write(_to_lines(events))

    def close(self) -> None:
        for log in self._logs.values():
            log.close()


def event_id(event: Event) -> bytes:
    """A short hash that identifies an event of a run: its worker records no two of a kind at the same time."""
    text = f"{event_name(type(event))} {event.worker} {event.at_s!r}"
    return hashlib.blake2b(text.encode(), digest_size=ID_BYTES).digest()


def _split_ids(ids: bytes) -> set[bytes]:
    return {ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES)}


def _to_lines(events: Iterable[Event]) -> bytes:
    return "".join(f"{to_json(event)}\n" for event in events).encode()


def _pack(events: Iterable[Event]) -> bytes:
    return zlib.compress(_to_lines(events))


def _read_infrequent(log: Path) -> Iterator[Event]:
    """The infrequent events of a log, and the last step of each session, where one that was killed ended.

    The other lines are not parsed: a long run has many.
    """
    step_start, sum_start, sample_start, run_start = (
        f'{{"event":"{event_name(kind)}"'.encode() for kind in (StepDone, StepsSummed, HostSampled, RunStarted)
    )
    last_step = b""
    with log.open("rb") as lines:
        for line in lines:
            if line.startswith(step_start):
                last_step = line
            elif not line.startswith((sum_start, sample_start)):
                found = [last_step, line] if line.startswith(run_start) else [line]
                yield from (event for event in map(from_json, found) if event is not None)
    if (event := from_json(last_step)) is not None:
        yield event
