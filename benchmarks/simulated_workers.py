"""Workers simulated in one process, on one device: threads that take turns, and collectives in memory.

Each worker has its own weights and optimizer state, and trains on its share of each batch with the code of real runs:
data loader, train step, optimizer and exchange. Only the network is replaced, and the model that computes the passes is
shared. So the quality of an exchange method can be measured on a single GPU, at almost the speed of a single worker
that computes everything.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

from dragoman.batching.data_loader import WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import gradient_of
from dragoman.model.transformer import Transformer
from dragoman.training.train_step import TrainStep, WorkerGradients

T = TypeVar("T")


class SimulatedWorld:
    """The memory in which simulated workers meet."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.turn = Lock()
        """Held by the worker that computes. It is free while workers wait for each other."""
        self._changed = Condition()
        self._posted: dict[tuple[str, int], dict[int, Tensor]] = {}
        self._taken: dict[tuple[str, int], int] = {}
        self._failed = False

    def run(self, work: Callable[["SimulatedCluster"], T], device: torch.device) -> list[T]:
        """The results of all workers, by rank."""

        def run_worker(rank: int) -> T:
            cluster = SimulatedCluster(self, rank, device)
            try:
                return work(cluster)
            except BaseException:
                with self._changed:
                    self._failed = True
                    self._changed.notify_all()
                raise
            finally:
                cluster.close()

        with ThreadPoolExecutor(self.workers, "simulated worker") as pool:
            return [future.result() for future in [pool.submit(run_worker, rank) for rank in range(self.workers)]]

    def post(self, key: tuple[str, int], rank: int, tensor: Tensor) -> None:
        with self._changed:
            self._posted.setdefault(key, {})[rank] = tensor
            self._changed.notify_all()

    def take(self, key: tuple[str, int]) -> list[Tensor]:
        """What all workers have posted under a key, by rank. Waits until they have."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or len(self._posted[key]) == self.workers)
            if self._failed:
                raise RuntimeError("another simulated worker has failed")
            tensors = [self._posted[key][rank] for rank in range(self.workers)]
            self._taken[key] = self._taken.get(key, 0) + 1
            if self._taken[key] == self.workers:
                del self._posted[key], self._taken[key]
            return tensors


class SimulatedGroup:
    """The collectives of one simulated worker, with the bytes that real ones would send."""

    def __init__(self, world: SimulatedWorld, rank: int) -> None:
        self.rank, self.world_size = rank, world.workers
        self.members: tuple[Any, ...] = ()
        self.message_device = torch.device("cpu")
        self.bytes_sent = 0
        self._world = world
        self._counts: dict[str, int] = {}

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.all_reduce_async(tensor)()
        return tensor

    def all_reduce_async(self, tensor: Tensor) -> Callable[[], None]:
        self._count_bytes(tensor, 2 / self.world_size)
        take = self._exchange("all_reduce", tensor.clone())  # A copy: the sum replaces the worker's own values.
        return lambda: _sum_into(tensor, take())

    def all_gather_async(self, tensor: Tensor) -> Callable[[], list[Tensor]]:
        self._count_bytes(tensor, 1)
        return self._exchange("all_gather", tensor)

    def all_to_all_async(self, parts: Tensor) -> Callable[[], Tensor]:
        self._count_bytes(parts[0], 1)
        take = self._exchange("all_to_all", parts)
        return lambda: torch.stack([sent[self.rank] for sent in take()])

    def _count_bytes(self, tensor: Tensor, factor: float) -> None:
        self.bytes_sent += round((self.world_size - 1) * factor * tensor.numel() * tensor.element_size())

    def _exchange(self, operation: str, tensor: Tensor) -> Callable[[], list[Tensor]]:
        number = self._counts[operation] = self._counts.get(operation, 0) + 1
        self._world.post((operation, number), self.rank, tensor)
        return lambda: self._world.take((operation, number))


class SimulatedCluster(Cluster):
    """The world as one simulated worker sees it."""

    def __init__(self, world: SimulatedWorld, rank: int, device: torch.device) -> None:
        super().__init__(rank, world.workers, world.workers, device)
        self.turn = world.turn
        self._group = SimulatedGroup(world, rank) if world.workers > 1 else None  # type: ignore[assignment]


class SharedTrainStep:
    """The train step of all workers, one after the other, on one model: compiled once, with one set of CUDA graphs.

    Copying a worker's weights in and its gradients out takes under a millisecond of a GPU's time.
    """

    def __init__(self, model: Transformer, train_step: TrainStep) -> None:
        self._parameters, self._train_step = model.trainable_parameters, train_step

    def warm_up(self, batch: WorkerBatch) -> None:
        """Compile and capture the pass over batches of this size: better before other threads use the device."""
        for _ in range(self._train_step.warm_up_passes):
            self._train_step(batch, 1)

    @torch.no_grad()
    def __call__(self, model: Transformer, batch: WorkerBatch, step: int) -> WorkerGradients:
        """The gradients of a worker's batch, in its own parameters."""
        own = model.trainable_parameters
        torch._foreach_copy_(self._parameters, own)
        for parameter in self._parameters:
            parameter.grad = None
        with torch.enable_grad():
            gradients = self._train_step(batch, step)
        torch._foreach_copy_(*([gradient_of(each) for each in parameters] for parameters in (own, self._parameters)))
        return gradients


def _sum_into(tensor: Tensor, parts: list[Tensor]) -> None:
    """In the order of ranks, so that all workers get the same bits."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    tensor.copy_(total)
