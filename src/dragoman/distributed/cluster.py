"""The workers of a run, and what they say to each other. The only module that knows how they were started.

Two engines, one interface. A static world is made once, by torchrun, mpirun, srun or ourselves: when a worker is lost,
all are started again. An elastic world (`elastic`) asks torchft's lighthouse before every step who is there.
"""

import json
import os
import socket
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from dragoman.distributed.heartbeat import Heartbeat
from dragoman.distributed.process_group import Member, WorkerGroup, address_towards

T = TypeVar("T")


class Cluster:
    """This worker's place in the world of all workers."""

    def __init__(self, worker: int, workers: int, local_world: int, device: torch.device) -> None:
        self.worker = worker
        """This worker's number in the whole job, which it keeps even where the world around it changes."""
        self.workers = workers
        """How many the whole job has."""
        self.local_world = local_world
        """Workers on this machine, who share its memory."""
        self.device = device
        self.host = host_name()
        self.pulse = Heartbeat()
        self.on_hang: Callable[[Sequence[tuple[Member, str]]], None] = lambda _: None
        """Told for whom this worker has been waiting too long, with their last words."""
        self._group: WorkerGroup | None = None
        self._sent_before = 0

    @property
    def rank(self) -> int:
        return self._group.rank if self._group else 0

    @property
    def world(self) -> int:
        return self._group.world if self._group else 1

    @property
    def members(self) -> Sequence[Member]:
        """All workers of the world, by rank."""
        return self._group.members if self._group else (self._myself("alone", "localhost"),)

    @property
    def is_first(self) -> bool:
        """Whether this worker speaks for all: it prints, and its run folder is the run's."""
        return self.rank == 0

    @property
    def machines(self) -> int:
        return len({member.host for member in self.members})

    @property
    def elastic(self) -> bool:
        """Whether the world can lose a worker and go on."""
        return False

    @property
    def bytes_sent(self) -> int:
        """What this worker has put on the wire so far."""
        return self._sent_before + (self._group.bytes_sent if self._group else 0)

    def renew(self) -> bool:
        """Before a step: whether the world is another than before the last one."""
        return False

    def lose(self) -> None:
        """Give up the present world after a `WorkersLostError`: the next `renew` makes another."""
        raise NotImplementedError("a static world cannot go on without all its workers")

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all workers, in place; the same bits on each of them."""
        return self._group.sum(tensor) if self._group else tensor

    def start_sum(self, tensor: Tensor) -> Callable[[], None]:
        """Begin to sum in the background. Call the result to wait for it."""
        return self._group.start_sum(tensor) if self._group else lambda: None

    def gather(self, item: T) -> list[T]:
        """Everyone's item, in the order of ranks, for everyone."""
        return self._group.gather(item) if self._group else [item]

    def start_gather(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin to collect everyone's tensor, all of one shape and type. Call the result to wait for them."""
        return self._group.start_gather(tensor) if self._group else lambda: [tensor]

    def share(self, item: T) -> T:
        """The first worker's item, for everyone."""
        return self.gather(item)[0]

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """The values of the worker of rank `source` for everyone, in place."""
        if self._group:
            self._group.broadcast(tensor, source)

    def leave(self) -> None:
        self.pulse.close()
        self._group = None

    def _myself(self, name: str, address: str) -> Member:
        return Member(name, self.worker, self.host, address, self.pulse.port)

    def _hangs(self, others: Sequence[tuple[Member, str]]) -> None:
        """Whoever does not wait like us keeps us waiting; where all wait, it is the network, and all are named."""
        self.on_hang([(member, words) for member, words in others if "waiting" not in words] or others)


class StaticCluster(Cluster):
    """A world that torchrun and its like describe in the environment."""

    def __init__(self, rank: int, world: int, local_world: int, device: torch.device) -> None:
        super().__init__(rank, world, local_world, device)
        if world == 1:
            return
        store, rank, world = next(rendezvous("env://", rank, world))
        # After a restart the agent's store still knows the addresses of the dead: look only at this attempt's.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        address = address_towards(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        store.set(f"member-{rank}", json.dumps(vars(self._myself(str(rank), address))))
        members = [Member(**json.loads(store.get(f"member-{other}"))) for other in range(world)]
        self._group = WorkerGroup("static", store, rank, members, device, self.pulse, self._hangs)


def join() -> Cluster:
    """Meet the other workers, if there are any, as the environment describes them."""
    place = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    rank, world, local_rank, local_world = (int(os.environ.get(name, value)) for name, value in place.items())
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if LIGHTHOUSES in os.environ:
        os.environ.setdefault("RUST_LOG", "error")  # torchft tells of every connection.
        from dragoman.distributed.elastic_cluster import ElasticCluster

        return ElasticCluster(os.environ[LIGHTHOUSES].split(","), rank, world, local_world, device)
    return StaticCluster(rank, world, local_world, device)


def host_name() -> str:
    """This machine as people call it: by the name that the launcher knows it by, else by its own."""
    return os.environ.get(HOST, "") or socket.gethostname()


LIGHTHOUSES = "DRAGOMAN_LIGHTHOUSES"
"""Addresses of the lighthouses, in order, which make a world elastic."""
HOST = "DRAGOMAN_HOST"
"""What the launcher calls this machine."""
