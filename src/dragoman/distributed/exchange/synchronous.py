"""Synchronous exchange: one all-reduce per step, and the same update on every worker."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import flatten, gradient_of, unflatten_into
from dragoman.distributed.exchange.interface import UnmergedSteps
from dragoman.distributed.step_stats import StepStats

AllReduce = Callable[[Cluster, Tensor, Sequence[Tensor]], Tensor]
"""Replaces gradients by their sums over all workers, and returns the sums of the packed stats."""


class SynchronousExchange:
    """All workers exchange in every step; `method` defines the message."""

    def __init__(self, cluster: Cluster, parameters: Sequence[nn.Parameter], method: AllReduce) -> None:
        self._cluster = cluster
        self._parameters = list(parameters)
        self._method = method
        self._stats: StepStats | None = None

    @torch.no_grad()
    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:  # noqa: ARG002 (a sum needs no rescaling)
        if self._cluster.world_size > 1:
            gradients = [gradient_of(parameter) for parameter in self._parameters]
            stats = StepStats.unpack(self._method(self._cluster, stats.pack(), gradients))
        self._stats = stats
        return stats

    def synchronize(
        self,
        *,
        flush: bool,  # noqa: ARG002 (always in sync)
        rollback: bool = False,
        last: bool = False,  # noqa: ARG002
    ) -> StepStats | None:
        stats, self._stats = self._stats, None
        # All workers have the same gradient, so that all skip the same steps, and no request needs to be sent.
        return None if stats is None else replace(stats, rollback_requests=stats.rollback_requests + rollback)

    @property
    def in_sync(self) -> bool:
        return True

    @property
    def common_weights(self) -> Sequence[Tensor]:
        return self._parameters

    @property
    def learning_rate_factor(self) -> float:
        return 1.0

    @property
    def unmerged(self) -> UnmergedSteps:
        return UnmergedSteps()

    def finished_fragment(self) -> dict[str, Tensor]:
        return {}

    def finish_fragment(self, finished: Mapping[str, Tensor]) -> None:
        pass

    def leave_world(self) -> None:
        self._stats = None

    @torch.no_grad()
    def merge(self, weight: float) -> None:  # noqa: ARG002 (it has no change of its own)
        weights = flatten(self._parameters)
        weights += sum_changes(self._cluster, torch.zeros_like(weights))
        unflatten_into(weights, self._parameters)

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        pass


def sum_changes(cluster: Cluster, change: Tensor) -> Tensor:
    """The sum of the workers' changes of the weights, which are small enough for bfloat16."""
    return cluster.all_reduce(change.bfloat16()).float()


def all_reduce_plain(cluster: Cluster, stats: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Stats and gradients in one float32 message."""
    message = cluster.all_reduce(torch.cat([stats, flatten(gradients)]))
    unflatten_into(message[len(stats) :], gradients)
    return message[: len(stats)]


def all_reduce_bf16(cluster: Cluster, stats: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    """Gradients in bfloat16, half the bytes. Stats stay in float32: a bf16 count is inexact past 256."""
    message = flatten(gradients).bfloat16()
    wait = cluster.all_reduce_async(message)
    stats = cluster.all_reduce(stats.clone())
    wait()
    unflatten_into(message, gradients)
    return stats
