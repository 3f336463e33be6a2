"""The workers of a run, and what they say to each other. The only module that knows how they were started."""

import os
import socket
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")


class Cluster:
    """This worker's place in the world of all workers, as torchrun and its like describe it in the environment."""

    def __init__(self, rank: int, world: int, local_world: int, device: torch.device) -> None:
        self.rank = rank
        self.world = world
        self.local_world = local_world
        """Workers on this machine, who share its memory."""
        self.device = device
        self.host = socket.gethostname()

    @classmethod
    def join(cls) -> "Cluster":
        """Meet the other workers, if there are any."""
        rank, world, local_rank, local_world = (int(os.environ.get(name, value)) for name, value in _ALONE.items())
        device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if world > 1 and not dist.is_initialized():
            store, rank, world = next(rendezvous("env://", rank, world))
            # After a restart the agent's store still knows the addresses of the dead: look only at this attempt's.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            backend = "nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(
                backend, store=PrefixStore(f"attempt-{attempt}", store), rank=rank, world_size=world
            )
        return cls(rank, world, local_world, device)

    @property
    def is_first(self) -> bool:
        """Whether this worker speaks for all: it prints, and writes checkpoints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all workers, in place; the same bits on each of them."""
        if self.world > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, item: T) -> list[T]:
        """Everyone's item, in the order of ranks, for everyone."""
        if self.world == 1:
            return [item]
        items: list[Any] = [None] * self.world
        dist.all_gather_object(items, item)
        return items

    def share(self, item: T) -> T:
        """The first worker's item, for everyone."""
        return self.gather(item)[0]

    def leave(self) -> None:
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


_ALONE = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
