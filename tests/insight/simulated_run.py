"""A simulated elastic run: real event logs, event sync and run folders, and workers that join, are lost and come back.

Collectives are exchanges of bytes between threads. A loss may interrupt one, so that only some workers get its result.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from dragoman.distributed import event_sync
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.process_group import Member, WorkersLostError
from dragoman.event_log import EventLog
from dragoman.events import (
    CheckpointSaved,
    Event,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    WorkersLost,
    WorldChanged,
)
from dragoman.run_folder import RunFolder

from .synthetic_runs import evaluation, host_sample, synthetic_run

TEMPLATE = synthetic_run(1)
STARTED = next(event for event in TEMPLATE if isinstance(event, RunStarted))
DONE = next(event for event in TEMPLATE if isinstance(event, StepDone))
EVALUATE_EVERY, SAVE_EVERY = 3, 2
START_S = 1.8e9
"""Time at which the simulated run starts."""


class SimulatedWorld:
    """A world of workers. Its collective number `breaks_at` fails for all but some ranks, and later ones for all."""

    def __init__(self, members: Sequence[Member], breaks_at: int | None, unharmed: Collection[int]) -> None:
        self.members = members
        self._breaks_at = math.inf if breaks_at is None else breaks_at
        self._unharmed = unharmed
        self._lock = threading.Condition()
        self._exchanges: list[dict[int, bytes]] = []

    def exchange(self, rank: int, number: int, content: bytes) -> list[bytes]:
        if number > self._breaks_at:
            raise WorkersLostError([], "connection closed")
        with self._lock:
            while len(self._exchanges) <= number:
                self._exchanges.append({})
            self._exchanges[number][rank] = content
            self._lock.notify_all()
            self._lock.wait_for(lambda: len(self._exchanges[number]) == len(self.members))
        if number == self._breaks_at and rank not in self._unharmed:
            raise WorkersLostError([], "connection closed")
        return [self._exchanges[number][other] for other in range(len(self.members))]


class SimulatedCluster(Cluster):
    """A simulated world, as one of its workers sees it."""

    def __init__(self, world: SimulatedWorld, rank: int) -> None:  # No heartbeats, so without the base's.
        self._world, self._own_rank, self._exchanges = world, rank, 0

    @property
    def rank(self) -> int:
        return self._own_rank

    @property
    def members(self) -> Sequence[Member]:
        return self._world.members

    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        self._exchanges += 1
        return self._world.exchange(self.rank, self._exchanges - 1, content)

    def all_gather_json(self, item: Any) -> list[Any]:
        return [json.loads(part) for part in self.all_gather_bytes(json.dumps(item).encode())]


@dataclass
class SimulatedWorker:
    """One worker's process."""

    number: int
    host: str
    run: RunFolder
    log: EventLog = field(init=False)
    sync: EventSync = field(init=False)

    def __post_init__(self) -> None:
        self.log, self.sync = EventLog(self.run.events_of(self.number)), EventSync(self.run)

    @property
    def member(self) -> Member:
        return Member(str(self.number), self.number, self.host, "", 0)

    def record(self, event: Event, at_s: float) -> None:
        event = replace(event, worker=self.number, at_s=at_s)
        self.log.record(event)
        self.sync.add(event)


@dataclass(frozen=True, order=True)
class Fact:
    """Something that happened in the run. A host knows it if it was there, or met one that knew it."""

    number: int
    kind: str
    step: int
    worker: str = ""


class SimulatedRun:
    """An elastic run. What each host should know is kept beside it, as plain sets of facts."""

    def __init__(self, folder: Path, placement: Sequence[str], clock_offsets_s: Sequence[float]) -> None:
        self.placement = placement
        self._offsets_s = dict(zip(sorted(set(placement)), clock_offsets_s, strict=False))
        self.folders = {host: RunFolder(folder / host) for host in placement}
        for run in self.folders.values():
            run.path.mkdir()
            run.config.write_text(json.dumps({"settings": {"training": {"steps": 1000}}}))
        self.live: dict[int, SimulatedWorker] = {}
        self.step = 0
        self.seconds = START_S
        self.knowledge: dict[str, set[Fact]] = {host: set() for host in placement}
        self._saved = dict.fromkeys(placement, 0)
        self._facts = 0
        self.join(*range(len(placement)))

    @property
    def hosts(self) -> list[str]:
        return [host for host in self.folders if any(worker.host == host for worker in self.live.values())]

    def names(self, workers: Collection[int]) -> list[str]:
        return [f"worker {number} on {self.placement[number]}" for number in sorted(workers)]

    def record(self, event: Event, workers: Collection[int] | None = None) -> None:
        """Every worker, or some, record an event, each at its own time by its own clock."""
        self.seconds += 0.01
        for index, (number, worker) in enumerate(sorted(self.live.items())):
            if workers is None or number in workers:
                worker.record(event, self.seconds + 0.001 * index + self._offsets_s[worker.host])

    def learn(self, kind: str, step: int, worker: str = "") -> None:
        self._facts += 1
        for host in self.hosts:
            self.knowledge[host].add(Fact(self._facts, kind, step, worker))

    def take_steps(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self.seconds += 1.0
            self.record(replace(DONE, step=self.step))
            if self.step % EVALUATE_EVERY == 0:
                self.record(evaluation(self.step, 10 / self.step, None, 0.0))
                self.learn("evaluated", self.step)
            if self.step % SAVE_EVERY == 0:
                writers = sorted(self.live)[:2]
                self.record(CheckpointSaved(step=self.step, name="", size_bytes=1, stall_s=0.0, write_s=0.0), writers)
                self._saved |= {self.live[number].host: self.step for number in writers}
        self.record(host_sample("a", 1), sorted(self.live)[:1])

    def roll_back(self) -> None:
        self.seconds += 5.0
        newest = max(self._saved[host] for host in self.hosts)
        back = min(self.step, newest)
        self.record(RolledBack(from_step=self.step, to_step=back, learning_rate_factor=0.5))
        self.learn("went back", back)
        self.step = back

    def exchange_events(self) -> None:
        self._together(lambda worker, cluster, storage: worker.sync.sync(cluster, storage))

    def lose(self, lost: Collection[int], namers: Collection[int], breaks_at: int | None, unharmed: Collection[int]):
        """Lose workers; those that survive form a new world. Some of them see only that a connection failed.

        With `breaks_at`, the loss interrupts the exchange of events in which the world before was formed or synced.
        """
        lost = set(lost) & set(self.live)
        if not lost:
            return
        if breaks_at is not None:
            self._together(lambda worker, cluster, storage: worker.sync.sync(cluster, storage), breaks_at, unharmed)
        for number in lost:
            self.live.pop(number).log.close()
        self.seconds += 2.0
        for number in self.live:
            names = [f"{name} (step {self.step}, heard 1.5 s ago)" for name in self.names(lost)]
            named = names if number in namers else []
            self.record(WorkersLost(step=self.step, workers=named, reason="no heartbeat"), [number])
        if self.live:
            for name in self.names(lost):
                self.learn("lost", self.step, name)
            self._form_world(new=())

    def join(self, *numbers: int, breaks_at: int | None = None, unharmed: Collection[int] = ()) -> None:
        """Workers start: the first ones of a session resume from the newest checkpoint of their hosts."""
        new = [number for number in numbers if number not in self.live]
        if not new:
            return
        self.seconds += 30.0
        is_new_session = not self.live
        for number in new:
            host = self.placement[number]
            self.live[number] = SimulatedWorker(number, host, self.folders[host])
        if is_new_session:
            self.step = max(self._saved[host] for host in self.hosts)
        if breaks_at is not None:  # A first attempt to form the world fails, and nobody is lost.
            self._together(
                lambda worker, cluster, storage: worker.sync.join_world(cluster, storage), breaks_at, unharmed
            )
        self._form_world(new)
        if is_new_session:
            self.learn("went back", self.step)

    def _form_world(self, new: Collection[int]) -> None:
        self._together(lambda worker, cluster, storage: worker.sync.join_world(cluster, storage))
        met = set[Fact]().union(*(self.knowledge[host] for host in self.hosts))
        self.knowledge |= {host: set(met) for host in self.hosts}
        names = self.names(self.live)
        for number in new:
            worker = self.live[number]
            started = replace(STARTED, host=worker.host, workers=names, resumed_step=self.step)
            self.record(replace(started, session_at_s=worker.sync.session_at_s), [number])
        self.record(WorldChanged(step=self.step, workers=names), set(self.live) - set(new))

    def end(self) -> None:
        self.seconds += 1.0
        ended = RunEnded(at_s=self.seconds, step=self.step, reason="finished", elapsed_s=1.0)
        ends = self._together(lambda worker, cluster, storage: worker.sync.end(cluster, storage, ended))
        for number, end in zip(sorted(self.live), ends, strict=True):
            self.live[number].record(end, end.at_s)

    def _together(
        self,
        work: Callable[[SimulatedWorker, SimulatedCluster, list[int]], Any],
        breaks_at: int | None = None,
        unharmed: Collection[int] = (),
    ) -> list[Any]:
        """Every worker takes part in a collective operation, in threads. A broken one raises in some of them."""
        workers = [self.live[number] for number in sorted(self.live)]
        world = SimulatedWorld([worker.member for worker in workers], breaks_at, unharmed)
        hosts = [worker.host for worker in workers]
        storage = [hosts.index(host) for host in hosts]

        def run(rank: int) -> Any:
            try:
                return work(workers[rank], SimulatedCluster(world, rank), storage)
            except WorkersLostError:
                assert breaks_at is not None
                return None

        clock = SimpleNamespace(time=lambda: self.seconds, monotonic=time.monotonic)
        with patch.object(event_sync, "time", clock), ThreadPoolExecutor(max_workers=len(workers)) as pool:
            return list(pool.map(run, range(len(workers))))
