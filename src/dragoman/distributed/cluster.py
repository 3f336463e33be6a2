"""The workers of a run and their collectives. The only module that knows how the workers were started.

There are two implementations. A static world is created once, by torchrun, mpirun, srun or `dragoman train --workers`:
when a worker is lost, all workers restart. An elastic world (`elastic_cluster`) asks torchft's lighthouse before every
step which workers are present.
"""

import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dragoman.authentication import RejectionSummary
from dragoman.distributed.heartbeat import Heartbeat
from dragoman.distributed.process_group import (
    Member,
    StallCallback,
    WorkerProcessGroup,
    WorkersLostError,
    address_towards,
)
from dragoman.distributed.static_store import open_store, share_secret
from dragoman.worker_environment import ADDRESS, HOST, LIGHTHOUSES, SECRET

STATIC_SILENCE_S = 30.0
"""A worker of a static world without a heartbeat for this long is lost. A shorter freeze costs only its own time; a
loss costs the steps since the last checkpoint."""


class Cluster:
    """The world of all workers, as one of them sees it."""

    def __init__(
        self,
        worker: int,
        workers: int,
        local_world_size: int,
        device: torch.device,
        silence_s: float = STATIC_SILENCE_S,
    ) -> None:
        """A worker without a heartbeat for `silence_s` counts as lost."""
        self.worker = worker
        """This worker's number in the whole run, which it keeps when the world changes."""
        self.workers = workers
        """Number of workers that the run was started with."""
        self.local_world_size = local_world_size
        """Workers on this machine, which share its memory."""
        self.device = device
        self.host = host_name()
        # Names sort like worker numbers, which gives the ranks, and a restarted worker gets a new name.
        self.name = f"{worker:05d}-{uuid.uuid4().hex}"
        self.heartbeat = Heartbeat(silence_s)
        self.on_stall: StallCallback = lambda _: None
        """Called when a collective has been waiting for long, with the workers it waits for and their last activity."""
        self._group: WorkerProcessGroup | None = None
        self._bytes_sent_before = 0
        self._communication_before_s = 0.0

    @property
    def rank(self) -> int:
        return self._group.rank if self._group else 0

    @property
    def world_size(self) -> int:
        return self._group.world_size if self._group else 1

    @property
    def members(self) -> Sequence[Member]:
        """All workers of the world, by rank."""
        return self._group.members if self._group else (self._this_member("localhost"),)

    @property
    def is_main(self) -> bool:
        """True for the worker that prints and writes for all."""
        return self.rank == 0

    @property
    def machines(self) -> int:
        return len({member.host for member in self.members})

    @property
    def survives_losses(self) -> bool:
        """True if the world continues after it has lost a worker."""
        return False

    @property
    def bytes_sent(self) -> int:
        """Bytes this worker has sent in collectives so far."""
        return self._bytes_sent_before + (self._group.bytes_sent if self._group else 0)

    @property
    def communication_s(self) -> float:
        """Time so far in which collectives were under way, whatever this worker did meanwhile."""
        return self._communication_before_s + (self._group.communication.elapsed_s if self._group else 0.0)

    @property
    def message_device(self) -> torch.device:
        """Where messages of collectives are sent from without a copy: a GPU with NCCL, memory with gloo."""
        return self._group.message_device if self._group else self.device

    def refresh(self) -> bool:
        """Before a step: join the present world. True if it has changed since the last step."""
        return False

    def leave_world(self, lost: WorkersLostError) -> None:
        """Leave the present world after a loss; the next `refresh` forms another. A static world raises."""
        raise lost

    @property
    def has_newcomers(self) -> bool:
        """True if workers wait until they can join: between synchronisations, when `refresh` cannot be called."""
        return False

    def arrive(self) -> None:
        """Report to the others that this worker is at a synchronisation. Only an elastic world needs it."""

    def wait_for_quorum(self, quorum: float, grace_s: float) -> None:
        """Wait for the others where this worker has arrived. An elastic world continues without late ones (raises)."""

    @property
    def collectives(self) -> "Collectives":
        """Those of the present world. A thread keeps them, so that it never takes part in those of a later world."""
        return self._group or self

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over all workers, in place; the same bits on each of them."""
        return self._group.all_reduce(tensor) if self._group else tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], None]:
        """Start a sum in the background. Call the result to wait for it."""
        return self._group.all_reduce_async(tensor) if self._group else lambda: None

    def all_gather_async(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Start to collect every worker's tensor, all of one shape and dtype. Call the result to wait for them."""
        return self._group.all_gather_async(tensor) if self._group else lambda: [tensor]

    def all_to_all_async(self, parts: Tensor) -> Callable[[], Tensor]:
        """Start to send row i to rank i. Call the result for the rows that were sent to this worker, by rank."""
        return self._group.all_to_all_async(parts) if self._group else lambda: parts

    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Every worker's bytes, by rank."""
        return self._group.all_gather_bytes(content) if self._group else [content]

    def all_gather_json(self, item: Any) -> list[Any]:
        """Every worker's JSON value, by rank; tuples arrive as lists."""
        return self._group.all_gather_json(item) if self._group else [json.loads(json.dumps(item))]

    def broadcast_json(self, item: Any) -> Any:
        """The JSON value of rank 0, for every worker."""
        return self.all_gather_json(item)[0]

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """Copy the values of rank `source` to all workers, in place."""
        if self._group:
            self._group.broadcast(tensor, source)

    def take_rejections(self) -> RejectionSummary | None:
        """What strangers have sent to this worker since the last report; None if nothing is to be reported now."""
        return self.heartbeat.rejections.take()

    def close(self) -> None:
        self.heartbeat.close()
        self._group = None

    def exit_process(self, exit_code: int) -> None:
        """End the process at once where abandoned connections would keep it from exiting."""

    def _this_member(self, address: str) -> Member:
        return Member(self.name, self.worker, self.host, address, self.heartbeat.port)

    def _report_stall(self, peers: Sequence[tuple[Member, str]]) -> None:
        """Report the workers that are not waiting themselves. If all are, the network stalls, and all are reported."""
        self.on_stall([(member, activity) for member, activity in peers if "waiting" not in activity] or peers)


Collectives = WorkerProcessGroup | Cluster
"""Operations of all workers of one world."""


class StaticCluster(Cluster):
    """A world that torchrun, mpirun or srun describes in environment variables."""

    def __init__(self, rank: int, world_size: int, local_world_size: int, device: torch.device) -> None:
        super().__init__(rank, world_size, local_world_size, device)
        if world_size == 1:
            return
        store, self._relay = open_store(rank, world_size, self.heartbeat.rejections)
        address = own_address(os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0")))
        self.heartbeat.listen(address, os.environ.get(SECRET) or share_secret(store, rank))
        store.set(f"member-{rank}", json.dumps(vars(self._this_member(address))))
        members = [Member(**json.loads(store.get(f"member-{other}"))) for other in range(world_size)]
        self._group = WorkerProcessGroup("static", store, rank, members, device, self.heartbeat, self._report_stall)


def join_cluster() -> Cluster:
    """Join the other workers, if the environment describes any."""
    defaults = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    rank, world_size, local_rank, local_world_size = (
        int(os.environ.get(name, value)) for name, value in defaults.items()
    )
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if LIGHTHOUSES in os.environ:
        os.environ.setdefault("RUST_LOG", "error")  # torchft logs every connection.
        from dragoman.distributed.elastic_cluster import ElasticCluster

        lighthouses = [(str(address), int(port)) for address, port in json.loads(os.environ[LIGHTHOUSES])]
        return ElasticCluster(lighthouses, os.environ[SECRET], rank, world_size, local_world_size, device)
    return StaticCluster(rank, world_size, local_world_size, device)


def host_name() -> str:
    """The launcher's name for this machine, or its own hostname."""
    return os.environ.get(HOST, "") or socket.gethostname()


def own_address(other_host: str, other_port: int) -> str:
    """Address of this machine for the other workers: the launcher's choice, or the one towards another host."""
    return os.environ.get(ADDRESS) or address_towards(other_host, other_port)


def launched_externally() -> bool:
    """True if torchrun or the like has already created a world that this process belongs to."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
