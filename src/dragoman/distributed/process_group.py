"""The connected workers of one world, and collectives that raise with the lost worker's name instead of hanging."""

import json
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, AllToAllOptions, Store
from torch.distributed.distributed_c10d import (
    AllreduceOptions,
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    Work,
)

from dragoman.distributed.communication_clock import CommunicationClock
from dragoman.distributed.heartbeat import HEARTBEAT_INTERVAL_S, Heartbeat
from dragoman.distributed.listener_filter import admit_only, create_listeners
from dragoman.distributed.quorum_wait import QuorumWait

TIMEOUT = timedelta(minutes=30)
"""Time limit of a collective while all workers are alive: a slow link or a long evaluation is not a failure."""
STALL_S = 20.0
"""Time after which a stalled collective is reported."""
POLL_S = 0.0005
NO_HEARTBEAT = "no heartbeat"
LATE = "late at a synchronisation"
CONNECTION_CLOSED = "connection closed"
_CONNECTION_ERROR = re.compile("connection|socket|broken pipe|timed out|read error|write error", re.IGNORECASE)
"""The many words of gloo, NCCL and the store for a connection that the other end has left."""

CLOSE_S = 10.0
"""An abandoned group is closed after this time. Until then its other workers learn from heartbeats who was lost, not
from connections that are closed."""
CLOSING_THREAD = "close group"


@dataclass(frozen=True)
class Member:
    """A worker of the present world."""

    name: str
    """Unique to this process: a restarted worker gets a new name."""
    worker: int
    """Its number in the whole run, kept over restarts."""
    host: str
    address: str
    heartbeat_port: int

    def __str__(self) -> str:
        return f"worker {self.worker} on {self.host}"


class WorkersLostError(Exception):
    """A collective failed because workers were lost."""

    def __init__(self, missing: Sequence[tuple[Member, str]], reason: str) -> None:
        names = ", ".join(f"{member} ({activity})" for member, activity in missing) or "a worker"
        self.missing = missing
        """The lost workers with their last known activity; empty where only the connection failed."""
        self.reason = CONNECTION_CLOSED if _CONNECTION_ERROR.search(reason) else reason
        super().__init__(f"{names} was lost: {self.reason}")


class WorkersLateError(WorkersLostError):
    """Enough workers have arrived at a synchronisation, and no longer wait for the late ones, which are alive."""

    def __init__(self, late: Sequence[tuple[Member, str]]) -> None:
        super().__init__(late, LATE)


StallCallback = Callable[[Sequence[tuple[Member, str]]], None]


class WorkerProcessGroup:
    """The connected members of one world. A group never changes: after a loss, a new one is formed."""

    def __init__(
        self,
        key: str,
        store: Store,
        rank: int,
        members: Sequence[Member],
        device: torch.device,
        heartbeat: Heartbeat,
        on_stall: StallCallback,
    ) -> None:
        self.rank = rank
        self.members = tuple(members)
        self.bytes_sent = 0
        self.communication = CommunicationClock()
        self._device = device
        self._heartbeat = heartbeat
        self._on_stall = on_stall
        self._is_abandoned = False
        peers = {
            member.name: (member.address, member.heartbeat_port) for member in members if member is not members[rank]
        }
        heartbeat.join(key, members[rank].name, peers)
        self._nccl = device.type == "cuda" and _has_own_gpus(members)
        self._backend = self._connect(PrefixStore(key, store))

    @property
    def world_size(self) -> int:
        return len(self.members)

    @property
    def message_device(self) -> torch.device:
        """Where messages are sent from without a copy."""
        return self._device if self._nccl else torch.device("cpu")

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over all workers, in place; the same bits on each of them."""
        self.all_reduce_async(tensor)()
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], None]:
        """Start a sum in the background. Call the result to wait for it."""
        # In a ring all-reduce every worker sends 2 (n - 1) / n of the elements.
        self.bytes_sent += 2 * (self.world_size - 1) * tensor.numel() * tensor.element_size() // self.world_size
        work = self._start(lambda: self._backend.allreduce([tensor], AllreduceOptions()))
        return lambda: self._wait_for(work)

    def all_gather_async(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Start to collect every worker's tensor, all of one shape and dtype. Call the result to wait for them."""
        self.bytes_sent += (self.world_size - 1) * tensor.numel() * tensor.element_size()
        parts = [torch.empty_like(tensor) for _ in self.members]
        work = self._start(lambda: self._backend.allgather([parts], [tensor], AllgatherOptions()))

        def wait() -> list[Tensor]:
            self._wait_for(work)
            return parts

        return wait

    def all_to_all_async(self, parts: Tensor) -> Callable[[], Tensor]:
        """Start to send row i to rank i. Call the result for the rows that were sent to this worker, by rank."""
        self.bytes_sent += (self.world_size - 1) * parts[0].numel() * parts.element_size()
        # Gloo does this on CPUs only.
        message = parts.contiguous() if self._nccl else parts.cpu().contiguous()
        received = torch.empty_like(message)
        work = self._start(lambda: self._backend.alltoall_base(received, message, [], [], AllToAllOptions()))

        def wait() -> Tensor:
            self._wait_for(work)
            return received.to(parts.device)

        return wait

    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Every worker's bytes, of any length, by rank."""
        sizes = self.all_gather_async(torch.tensor([len(content)], device=self._device))()
        padded = torch.frombuffer(bytearray(content.ljust(max(1, *map(int, sizes)), b"\0")), dtype=torch.uint8)
        parts = self.all_gather_async(padded.to(self._device))()
        return [part.cpu().numpy().tobytes()[: int(size)] for part, size in zip(parts, sizes, strict=True)]

    def all_gather_json(self, item: Any) -> list[Any]:
        """Every worker's JSON value, by rank. Never pickle: a peer's bytes must not be able to run code."""
        return [json.loads(part) for part in self.all_gather_bytes(json.dumps(item).encode())]

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Copy the source's values to all workers, in place."""
        options = BroadcastOptions()
        options.rootRank = source
        if self.rank == source:
            self.bytes_sent += tensor.numel() * tensor.element_size()
        self._wait_for(self._start(lambda: self._backend.broadcast([tensor], options)))

    def wait_for_quorum(self, quorum: float, grace_s: float) -> None:
        """Wait until all workers are where this one has arrived. Raise if only the quorum is there in time.

        A collective that has begun cannot go on without a worker. So workers report that they are there, and wait for
        these reports first. If they disagree on who was in time, those in the collective see others leave, and leave
        too.
        """
        self._wait_while_alive(QuorumWait(self._heartbeat, self.world_size, quorum, grace_s))
        if self._heartbeat.gave_up_here:
            raise self._workers_lost(LATE)

    def abandon(self) -> None:
        """Leave a group that has lost a worker. Its pending operations are left behind."""
        self._is_abandoned = True
        self._heartbeat.leave()
        _close_later([self._backend])
        # The thread must have the last reference: the one that drops it waits.
        self._backend = _AbandonedBackend()

    def _connect(self, store: Store) -> Any:
        """Connect to all others in a thread, while heartbeats show whether a worker is lost meanwhile."""
        made: list[Any] = []
        errors: list[Exception] = []

        def connect() -> None:
            try:
                made.append(self._make_nccl(store) if self._nccl else _make_gloo(store, self.rank, self.members))
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        done = threading.Event()
        threading.Thread(target=connect, daemon=True).start()
        self._wait_while_alive(done.wait)
        if errors:
            raise self._workers_lost(_first_line(errors[0]))
        return made[0]

    def _make_nccl(self, store: Store) -> Any:
        from torch.distributed import ProcessGroupNCCL

        torch.cuda.set_device(self._device)
        return ProcessGroupNCCL(store, self.rank, self.world_size, ProcessGroupNCCL.Options())

    def _start(self, begin: Callable[[], Work]) -> Work:
        """Begin a collective, which the clock counts until it is done: with NCCL, until a thread has waited for it."""
        communication = self.communication
        communication.start()
        work = begin()
        if not self._nccl:
            work.get_future().add_done_callback(lambda _: communication.stop())
        return work

    def _wait_for(self, work: Work) -> None:
        """Wait for a collective, or raise with the workers that were lost."""
        if self._nccl:
            self._wait_for_nccl(work)
            return
        done = threading.Event()
        future = work.get_future()
        future.add_done_callback(lambda _: done.set())
        self._wait_while_alive(done.wait)
        try:
            future.value()
        except RuntimeError as error:
            raise self._workers_lost(_first_line(error)) from None

    def _wait_for_nccl(self, work: Work) -> None:
        """Wait for NCCL's kernels. They cannot notice a missing worker, so they are aborted here."""
        while not work.is_completed():
            if self._heartbeat.missing():
                self._backend.abort()
                raise self._workers_lost(NO_HEARTBEAT)
            time.sleep(POLL_S)
        work.wait()
        self.communication.stop()

    def _wait_while_alive(self, wait: Callable[[float], bool]) -> None:
        """Call `wait` with a time limit until it returns True. Raise if workers are lost meanwhile."""
        started, reported = time.monotonic(), False
        while not wait(HEARTBEAT_INTERVAL_S):
            if self._is_abandoned:  # A thread of an earlier world: heartbeats are those of a later one.
                raise WorkersLostError([], CONNECTION_CLOSED)
            if self._heartbeat.missing():
                raise self._workers_lost(NO_HEARTBEAT)
            if not reported and time.monotonic() - started > STALL_S:
                reported = True
                self._on_stall(self._peer_activities())

    def _workers_lost(self, reason: str) -> WorkersLostError:
        """The error of a failed collective, with all workers that are known to be late or lost."""
        if self._heartbeat.gave_up:
            late = self._heartbeat.late()
            return WorkersLateError([each for each in self._activities() if each[0].name in late])
        lost = self._heartbeat.find_lost()
        return WorkersLostError([each for each in self._activities() if each[0].name in lost], reason)

    def _peer_activities(self) -> list[tuple[Member, str]]:
        return [(member, activity) for member, activity in self._activities() if member is not self.members[self.rank]]

    def _activities(self) -> list[tuple[Member, str]]:
        """All workers with their last known activity."""
        return [(member, self._heartbeat.last_activity(member.name)) for member in self.members]


def _make_gloo(store: Store, rank: int, members: Sequence[Member]) -> ProcessGroupGloo:
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    where = {"interface": interface} if interface else {"hostname": members[rank].address}
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = TIMEOUT
    device, listeners = create_listeners(lambda: ProcessGroupGloo.create_device(**where))
    options._devices = [device]
    admit_only(listeners, {member.address for member in members})
    group = ProcessGroupGloo(store, rank, len(members), options)
    admit_only(listeners, ())  # All members are connected to each other.
    return group


class _AbandonedBackend:
    """Takes the place of a backend, for threads that still use its group."""

    def __getattr__(self, name: str) -> Any:
        raise WorkersLostError([], CONNECTION_CLOSED)


def _close_later(backends: list[Any]) -> None:
    """Close abandoned backends: each has threads, connections, and the tensors of its pending operations."""

    def close() -> None:
        time.sleep(CLOSE_S)
        backends.clear()  # Waits for pending operations, which end after `TIMEOUT` at the latest.

    threading.Thread(target=close, name=CLOSING_THREAD, daemon=True).start()


def address_towards(host: str, port: int) -> str:
    """The address of this machine as a host sees it."""
    family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # Sends nothing: it only looks up the route.
        address: str = probe.getsockname()[0]
        return address


def _has_own_gpus(members: Sequence[Member]) -> bool:
    """True if each worker has a GPU of its own, as NCCL requires. Workers that share one use gloo."""
    return max(Counter(member.host for member in members).values()) <= torch.cuda.device_count()


def _first_line(error: Exception) -> str:
    """The first line of a library's error, without the source location and the end that gloo adds."""
    line = str(error).partition("\n")[0] or type(error).__name__
    return re.sub(r"^\[\S+:\d+\]\s*|\s*GLHF!.*$", "", line)
