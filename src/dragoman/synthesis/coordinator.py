"""The coordinator of a synthesis: leases shards to workers on all hosts, and stores what they return.

It alone reads the texts and writes the results; workers keep nothing. So any worker may be lost at any time, and the
coordinator, too: when it is started again, it goes on with the shards that are not stored yet.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from dragoman.errors import DragomanError
from dragoman.launch.agents import HostLostError
from dragoman.launch.ssh import Machine, SshClient
from dragoman.synthesis.messages import KEEPALIVE_S
from dragoman.synthesis.shard_queue import ShardQueue
from dragoman.synthesis.shard_store import ShardStore
from dragoman.synthesis.translation_job import TranslationJob
from dragoman.synthesis.worker_connection import (
    EngineFiles,
    ShardResult,
    UnusableHostError,
    WorkerConnection,
    WorkerPlace,
)

LEASES = 2
"""Shards on lease to a worker: it translates one while the other is on its way."""
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 60.0
"""Pause before a lost host is tried again; it doubles each time."""
MAX_CRASHES = 3
"""A worker that was lost this often in a row without a result is not started again."""


class SynthesisView(Protocol):
    """Where the state of hosts is shown."""

    def host_ready(self, host: str, machine: str) -> None: ...

    def host_lost(self, host: str, reason: str) -> None: ...

    def host_left_out(self, host: str, reason: str) -> None: ...

    def shard_done(self, host: str, result: ShardResult) -> None: ...


class Survey:
    """First connections to all machines, which tell what devices they have."""

    def __init__(self, machines: Sequence[Machine], client: SshClient) -> None:
        self.machines, self.client = machines, client
        self.connections: dict[str, WorkerConnection] = {}
        self.gpus: dict[str, int] = {}
        self.problems: dict[str, Exception] = {}
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(self._greet, machines))
        if not self.connections:
            problems = [f"{host} cannot be used: {error}." for host, error in self.problems.items()]
            raise DragomanError("\n  ".join(["Nothing was started:", *problems]))

    def _greet(self, machine: Machine) -> None:
        connection = WorkerConnection(WorkerPlace(machine), self.client)
        try:
            self.gpus[machine.name] = connection.greet()
            self.connections[machine.name] = connection
        except (HostLostError, UnusableHostError) as error:
            self.problems[machine.name] = error
            connection.close()

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


class Coordinator:
    """Runs one thread for each worker, which connects, leases shards, and connects again when the worker is lost."""

    def __init__(
        self,
        survey: Survey,
        job: TranslationJob,
        engine: EngineFiles,
        queue: ShardQueue,
        store: ShardStore,
        view: SynthesisView,
    ) -> None:
        self._survey, self._job, self._engine = survey, job, engine
        self._queue, self._store, self._view = queue, store, view
        self._connections: dict[str, WorkerConnection] = {}
        self._left_out: dict[str, str] = {}
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Return when all shards are stored. Raises an error if no worker is left, or a result cannot be stored."""
        for machine in self._survey.machines:
            self._start_thread(WorkerPlace(machine))
        kept_alive_at_s = time.monotonic()
        try:
            while not self._queue.is_done:
                self._queue.wait(0.2)
                if self._failure is not None:
                    raise self._failure
                if not any(thread.is_alive() for thread in self._threads) and not self._queue.is_done:
                    reasons = "; ".join(f"{host} {reason}" for host, reason in self._left_out.items())
                    raise DragomanError(f"No worker is left: {reasons}. The same command resumes.")
                if time.monotonic() - kept_alive_at_s > KEEPALIVE_S:
                    kept_alive_at_s = time.monotonic()
                    for connection in list(self._connections.values()):
                        connection.keep_alive()
        finally:
            self._stopped.set()
            for connection in [*self._connections.values(), *self._survey.connections.values()]:
                connection.close()
            for thread in self._threads:
                thread.join()

    def _start_thread(self, place: WorkerPlace) -> None:
        thread = threading.Thread(target=self._run_worker, args=(place,), name=place.name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run_worker(self, place: WorkerPlace) -> None:
        try:
            self._keep_working(place)
        except UnusableHostError as error:
            self._leave_out(place, str(error))
        except Exception as error:  # Raised again by `run`, in the main thread.
            self._failure = error

    def _leave_out(self, place: WorkerPlace, reason: str) -> None:
        self._left_out[place.name] = reason
        self._view.host_left_out(place.name, reason)

    def _keep_working(self, place: WorkerPlace) -> None:
        """Connect, and connect again, until all shards are done."""
        pause_s, crashes = FIRST_RETRY_S, 0
        connection = self._survey.connections.pop(place.name, None)
        while not self._queue.is_done and not self._stopped.is_set():
            results = 0
            try:
                if connection is None:
                    connection = WorkerConnection(place, self._survey.client)
                    self._survey.gpus[place.machine.name] = connection.greet()
                self._connections[place.name] = connection
                if place.index == 0:
                    self._check_devices(place.machine)
                connection.prepare(self._job, self._engine)
                crashes += 1
                self._view.host_ready(place.name, connection.machine_description)
                for _ in self._work(connection):
                    results += 1
            except HostLostError as lost:
                if self._stopped.is_set() or self._queue.is_done:
                    return
                crashes, pause_s = (0, FIRST_RETRY_S) if results else (crashes, min(2 * pause_s, MAX_RETRY_S))
                if crashes >= MAX_CRASHES:
                    self._leave_out(place, f"lost its worker {crashes} times in a row ({lost})")
                    return
                self._view.host_lost(place.name, str(lost))
                self._queue.release(place.name)
                self._stopped.wait(pause_s)
            finally:
                self._queue.release(place.name)
                self._connections.pop(place.name, None)
                if connection is not None:
                    connection.close()
                connection = None

    def _check_devices(self, machine: Machine) -> None:
        """Leave a machine without a GPU out where GPUs translate; start a worker for each further device."""
        if self._job.device == "cpu":
            return
        gpus = self._survey.gpus[machine.name]
        if not gpus:
            raise UnusableHostError(
                "has no GPU, and a CPU would translate some lines otherwise: leave it out, or use --device cpu"
            )
        known = {thread.name for thread in self._threads}
        for index in range(1, min(machine.workers or gpus, gpus)):
            place = WorkerPlace(machine, index)
            if place.name not in known:
                self._start_thread(place)

    def _work(self, connection: WorkerConnection) -> Iterator[int]:
        """Lease shards and store their results, yielding their numbers, until none is left."""
        name, on_lease = connection.place.name, 0
        while not self._queue.is_done and not self._stopped.is_set():
            while on_lease < LEASES and (shard := self._queue.take(name)) is not None:
                connection.send_shard(shard)
                on_lease += 1
            if not on_lease:
                self._queue.wait(1.0)
                continue
            result = connection.receive_result()
            on_lease -= 1
            if self._queue.is_open(result.number):
                self._store.write(result.number, result.content)
                if self._queue.finish(result.number):
                    self._view.shard_done(name, result)
                    yield result.number
