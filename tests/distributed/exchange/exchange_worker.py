"""A worker that exchanges random gradients or weights, for tests of all exchange methods."""

from collections.abc import Callable, Sequence

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import Exchange
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.powersgd import PowerSgd
from dragoman.distributed.exchange.synchronous import SynchronousExchange, all_reduce_bf16, all_reduce_plain
from dragoman.distributed.step_stats import StepStats

SHAPES = ((24, 18), (5,), (2, 7))
"""Shapes of the parameters. PowerSGD of rank 2 compresses only the first."""
BATCH_TOKENS = 1000
"""Target tokens of the global batch."""
BuildExchange = Callable[[Cluster, Sequence[nn.Parameter]], Exchange]

few_examples = settings(max_examples=12)
world_sizes = st.sampled_from([2, 3])
seeds = st.integers(0, 2**32 - 1)


def local_steps(
    every: int = 1,
    wire_format: str = "bf16",
    learning_rate: float = 0.7,
    momentum: float = 0.9,
    overlap: int = 1,
) -> BuildExchange:
    return lambda cluster, parameters: LocalSteps(
        cluster, parameters, every, wire_format, learning_rate, momentum, overlap=overlap
    )


METHODS: dict[str, BuildExchange] = {
    "plain": lambda cluster, parameters: SynchronousExchange(cluster, parameters, all_reduce_plain),
    "bf16": lambda cluster, parameters: SynchronousExchange(cluster, parameters, all_reduce_bf16),
    "powersgd": lambda cluster, parameters: SynchronousExchange(cluster, parameters, PowerSgd(2)),
    "local, bf16": local_steps(),
    "local, int8": local_steps(wire_format="int8"),
    "local, int4": local_steps(wire_format="int4"),
    "local, int2": local_steps(wire_format="int2"),
}


class ExchangeWorker:
    """One worker's parameters and its exchange. All workers start with the same weights."""

    def __init__(self, cluster: Cluster, build: BuildExchange, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
        generator = torch.Generator().manual_seed(1)
        self.parameters = [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in shapes]
        self.exchange = build(cluster, self.parameters)
        self._world_size = cluster.world_size

    @property
    def weights(self) -> Tensor:
        """All weights in one vector."""
        return torch.cat([parameter.detach().flatten() for parameter in self.parameters])

    def stats(self, tokens: float = 100.0) -> StepStats:
        times = [0.0] * self._world_size
        return StepStats(torch.tensor([7.0, 5.0]), tokens, times, times)

    def all_reduce(self, gradients: Sequence[Tensor | None], stats: StepStats | None = None) -> list[Tensor]:
        """Exchange this worker's gradients. Returns the gradients to update with."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        self.exchange.all_reduce(self.stats() if stats is None else stats, BATCH_TOKENS)
        return [parameter.grad.clone() for parameter in self.parameters if parameter.grad is not None]

    def add_to_weights(self, update: Tensor) -> None:
        """Update all weights, as an optimizer would."""
        parts = torch.split(update, [parameter.numel() for parameter in self.parameters])
        with torch.no_grad():
            for parameter, part in zip(self.parameters, parts, strict=True):
                parameter.add_(part.view_as(parameter))

    def take_steps(self, updates: Sequence[Tensor], *, flush_last: bool = True) -> None:
        """Take local steps with the given updates."""
        for step, update in enumerate(updates, start=1):
            self.all_reduce([None] * len(self.parameters))
            self.add_to_weights(update)
            self.exchange.synchronize(flush=flush_last and step == len(updates))


def random_gradients(seed: int, rank: int, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed + rank)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def random_updates(seed: int, rank: int, steps: int) -> list[Tensor]:
    return [
        0.01 * torch.cat([gradient.flatten() for gradient in random_gradients(seed + 100 * step, rank)])
        for step in range(steps)
    ]


def exact_sum(gradients: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The sum over workers in double precision."""
    return [torch.stack(each).double().sum(0) for each in zip(*gradients, strict=True)]
