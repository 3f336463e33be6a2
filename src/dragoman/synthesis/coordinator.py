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
from dragoman.synthesis.translation_job import TranslationJob, count_local_gpus
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

    def shard_done(self, host: str, result: ShardResult, reading_s: float) -> None: ...

    def refresh(self) -> None:
        """Called several times a second by the main thread."""


def count_gpus(machines: Sequence[Machine], client: SshClient) -> dict[str, int]:
    """GPUs of each machine that answers. Raises an error with all reasons if none does."""
    problems: dict[str, Exception] = {}

    def ask(machine: Machine) -> int | None:
        if machine.is_local:
            return count_local_gpus()
        connection = WorkerConnection(WorkerPlace(machine), client)
        try:
            return connection.greet()
        except (HostLostError, UnusableHostError) as error:
            problems[machine.name] = error
            return None
        finally:
            connection.close()

    with ThreadPoolExecutor(len(machines)) as pool:
        answers = dict(zip((machine.name for machine in machines), pool.map(ask, machines), strict=True))
    if len(problems) == len(machines):
        sentences = [f"{machine.name} cannot be used: {problems[machine.name]}." for machine in machines]
        raise DragomanError("\n  ".join(["Nothing was started:", *sentences]))
    return {host: gpus for host, gpus in answers.items() if gpus is not None}


class Coordinator:
    """Runs one thread for each worker, which connects, leases shards, and connects again when the worker is lost."""

    def __init__(
        self,
        machines: Sequence[Machine],
        client: SshClient,
        job: TranslationJob,
        engines: Sequence[EngineFiles],
        queue: ShardQueue,
        store: ShardStore,
        view: SynthesisView,
    ) -> None:
        self._machines, self._client = machines, client
        self._job, self._engines = job, engines
        self._queue, self._store, self._view = queue, store, view
        self._connections: dict[str, WorkerConnection] = {}
        self._left_out: dict[str, str] = {}
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Return when all shards are stored. Raises an error if no worker is left, or a result cannot be stored."""
        for machine in self._machines:
            self._start_thread(WorkerPlace(machine))
        kept_alive_at_s = time.monotonic()
        try:
            while not self._queue.is_done:
                self._queue.wait(0.2)
                self._view.refresh()
                self._raise_failure()
                if not any(thread.is_alive() for thread in self._threads) and not self._queue.is_done:
                    reasons = "; ".join(f"{host} {reason}" for host, reason in self._left_out.items())
                    raise DragomanError(f"No worker is left: {reasons}. The same command resumes.")
                if time.monotonic() - kept_alive_at_s > KEEPALIVE_S:
                    kept_alive_at_s = time.monotonic()
                    for connection in list(self._connections.values()):
                        connection.keep_alive()
            self._raise_failure()  # No shard is left after a text that cannot be read, either.
        finally:
            self._stopped.set()
            for connection in list(self._connections.values()):
                connection.close()
            for thread in self._threads:
                thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

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
        while not self._queue.is_done and not self._stopped.is_set():
            results = 0
            connection = self._connections[place.name] = WorkerConnection(place, self._client)
            crashes += place.machine.is_local
            try:
                self._check_devices(place, connection.greet())
                connection.prepare(self._job, self._engines)
                crashes += not place.machine.is_local
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
                self._queue.release(place.name)
                self._view.host_lost(place.name, str(lost))
                self._stopped.wait(pause_s)
            finally:
                self._queue.release(place.name)
                self._connections.pop(place.name, None)
                connection.close()

    def _check_devices(self, place: WorkerPlace, gpus: int) -> None:
        """Leave a machine without a GPU out where GPUs translate; start a worker for each further GPU of others."""
        if self._job.device == "cpu" or place.index > 0:
            return
        if not gpus:
            raise UnusableHostError(
                "has no GPU, and a CPU would translate some lines otherwise: leave it out, or use --device cpu and "
                "another --out"
            )
        known = {thread.name for thread in self._threads}
        for index in range(1, min(place.machine.workers or gpus, gpus)):
            further = WorkerPlace(place.machine, index)
            if further.name not in known:
                self._start_thread(further)

    def _work(self, connection: WorkerConnection) -> Iterator[int]:
        """Lease shards and store their results, yielding their numbers, until none is left."""
        name = connection.place.name
        on_lease: dict[int, float] = {}  # Numbers of shards, and the time that each was waited for until it was read.
        while not self._queue.is_done and not self._stopped.is_set():
            asked_at_s = time.monotonic()
            while len(on_lease) < LEASES and (shard := self._queue.take(name)) is not None:
                on_lease[shard.number] = time.monotonic() - asked_at_s
                connection.send_shard(shard)
                asked_at_s = time.monotonic()
            if not on_lease:
                self._queue.wait(1.0)
                continue
            result = connection.receive_result()
            reading_s = on_lease.pop(result.number)
            if self._queue.is_open(result.number):
                self._store.write(result.number, result.content)
                if self._queue.finish(result.number):
                    self._view.shard_done(name, result, reading_s)
                    yield result.number
