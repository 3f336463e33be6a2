"""Workers that reach each other: sums, and everyone's items. Whoever waits for a lost worker is told who it is."""

import os
import pickle
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, Store
from torch.distributed.distributed_c10d import (
    AllreduceOptions,
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    Work,
)

from dragoman.distributed.heartbeat import BEAT_S, Heartbeat

PATIENCE = timedelta(minutes=30)
"""How long a collective may take when all workers are alive: a slow link or a long evaluation is no failure."""
HANG_S = 20.0
"""How long a worker waits before it says for whom."""
POLL_S = 0.0005
NO_SIGN = "no sign of life"

T = TypeVar("T")

_ABANDONED: list[Any] = []
"""Connections to the dead. Closing one would wait for what is still under way in it."""


@dataclass(frozen=True)
class Member:
    """A worker of the present world."""

    name: str
    """Of this life: a worker that was started again has another."""
    worker: int
    """Its number in the whole job, which it keeps over restarts."""
    host: str
    address: str
    pulse_port: int

    def __str__(self) -> str:
        return f"worker {self.worker} on {self.host}"


class WorkersLostError(Exception):
    """A collective failed because someone is gone."""

    def __init__(self, missing: Sequence[tuple[Member, str]], reason: str) -> None:
        who = ", ".join(f"{member} ({words})" for member, words in missing) or "a worker"
        super().__init__(f"{who} was lost: {reason}")
        self.missing = missing
        """Who, with their last words; nobody where only the connection failed."""
        self.reason = reason


class WorkerGroup:
    """The members of one world, connected. It never changes: when someone is lost, another group is formed."""

    def __init__(
        self,
        key: str,
        store: Store,
        rank: int,
        members: Sequence[Member],
        device: torch.device,
        pulse: Heartbeat,
        on_hang: Callable[[Sequence[tuple[Member, str]]], None],
    ) -> None:
        self.rank = rank
        self.members = tuple(members)
        self._device = device
        self._pulse = pulse
        self._on_hang = on_hang
        others = {member.name: (member.address, member.pulse_port) for member in members if member is not members[rank]}
        self.bytes_sent = 0
        pulse.join(key, members[rank].name, others)
        self._nccl = device.type == "cuda" and _has_own_gpu(members)
        self._backend = self._connect(PrefixStore(key, store))

    @property
    def world(self) -> int:
        return len(self.members)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all workers, in place; the same bits on each of them."""
        self.start_sum(tensor)()
        return tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Begin to sum in the background. Call the result to wait for it."""
        # A ring sends every element twice, but for the part that a worker begins and ends with.
        self.bytes_sent += 2 * (self.world - 1) * tensor.numel() * tensor.element_size() // self.world
        work = self._backend.allreduce([tensor], AllreduceOptions())
        return lambda: self._finish(work)

    def start_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to collect everyone's tensor, all of one shape and type. Call the result to wait for them."""
        self.bytes_sent += (self.world - 1) * tensor.numel() * tensor.element_size()
        parts = [torch.empty_like(tensor) for _ in self.members]
        work = self._backend.allgather([parts], [tensor], AllgatherOptions())

        def finish() -> list[Tensor]:
            self._finish(work)
            return parts

        return finish

    def gather(self, item: T) -> list[T]:
        """Everyone's item, in the order of ranks, for everyone."""
        packed = pickle.dumps(item)
        sizes = self.start_gather(torch.tensor([len(packed)], device=self._device))()
        room = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8)
        room[: len(packed)] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        parts = self.start_gather(room.to(self._device))()
        return [
            pickle.loads(part.cpu().numpy().tobytes()[: int(size)]) for part, size in zip(parts, sizes, strict=True)
        ]

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """The source's values for everyone, in place."""
        options = BroadcastOptions()
        options.rootRank = source
        if self.rank == source:
            self.bytes_sent += tensor.numel() * tensor.element_size()
        self._finish(self._backend.broadcast([tensor], options))

    def abandon(self) -> None:
        """Leave a group that has lost someone. What still waits for the dead is left to wait, out of our way."""
        self._pulse.leave()
        _ABANDONED.append(self._backend)

    def _connect(self, store: Store) -> Any:
        """Connect to all others, in a thread: should one of them die just now, we hear of it by its silence."""
        made: list[Any] = []
        errors: list[Exception] = []

        def connect() -> None:
            try:
                make = self._make_nccl if self._nccl else self._make_gloo
                made.append(make(store))
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        done = threading.Event()
        threading.Thread(target=connect, daemon=True).start()
        self._wait(done)
        if errors:
            raise self._lost(_first_line(errors[0]))
        return made[0]

    def _make_nccl(self, store: Store) -> Any:
        from torch.distributed import ProcessGroupNCCL

        torch.cuda.set_device(self._device)
        return ProcessGroupNCCL(store, self.rank, self.world, ProcessGroupNCCL.Options())

    def _make_gloo(self, store: Store) -> Any:
        interface = os.environ.get("GLOO_SOCKET_IFNAME")
        where = {"interface": interface} if interface else {"hostname": self.members[self.rank].address}
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._timeout = PATIENCE
        options._devices = [ProcessGroupGloo.create_device(**where)]
        return ProcessGroupGloo(store, self.rank, self.world, options)

    def _finish(self, work: Work) -> None:
        """Wait for a collective, or find out who keeps it from ending."""
        if self._nccl:
            self._finish_on_gpu(work)
            return
        done = threading.Event()
        future = work.get_future()
        future.add_done_callback(lambda _: done.set())
        self._wait(done)
        try:
            future.value()
        except RuntimeError as error:
            raise self._lost(_first_line(error)) from None

    def _finish_on_gpu(self, work: Work) -> None:
        """NCCL's own kernels wait. Only when someone is missing must they be ended from outside."""
        while not work.is_completed():
            if self._pulse.missing():
                self._backend.abort()
                raise self._lost(NO_SIGN)
            time.sleep(POLL_S)
        work.wait()

    def _wait(self, done: threading.Event) -> None:
        started, told = time.monotonic(), False
        while not done.wait(BEAT_S):
            if self._pulse.missing():
                raise self._lost(NO_SIGN)
            if not told and time.monotonic() - started > HANG_S:
                told = True
                self._on_hang(self._others())

    def _lost(self, reason: str) -> WorkersLostError:
        """The failure of a collective, with all who are known to be gone."""
        lost = self._pulse.find_lost()
        return WorkersLostError([(member, words) for member, words in self._others() if member.name in lost], reason)

    def _others(self) -> list[tuple[Member, str]]:
        """All but this worker, with their last words."""
        mine = self.members[self.rank]
        return [(member, self._pulse.last_words(member.name)) for member in self.members if member is not mine]


def address_towards(host: str, port: int) -> str:
    """The address under which this machine is reached by whoever is on the way to a host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # Sends nothing: it only looks up the route.
        address: str = probe.getsockname()[0]
        return address


def _has_own_gpu(members: Sequence[Member]) -> bool:
    """NCCL wants a GPU for each worker; workers who share one exchange by gloo."""
    return max(Counter(member.host for member in members).values()) <= torch.cuda.device_count()


def _first_line(error: Exception) -> str:
    """What a library says first, without the place in its source and gloo's good wishes."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"^\[\S+:\d+\]\s*|\s*GLHF!.*$", "", line)
