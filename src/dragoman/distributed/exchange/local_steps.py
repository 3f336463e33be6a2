"""Local steps (DiLoCo): each worker updates on its own share, and every few steps the weights are synchronised.

The change of the weights since the last synchronisation is averaged and used as the gradient of an outer optimizer with
Nesterov momentum (DiLoCo, Douillard et al. 2023). With `streaming` the weights are split into as many fragments as
there are steps between synchronisations, and in each step one fragment is averaged while the next step computes: the
link is always busy and no worker waits for it (Streaming DiLoCo, Douillard et al. 2025).
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import flatten, gradient_of, split_evenly, unflatten_into
from dragoman.distributed.exchange.int8_blocks import dequantize, quantize
from dragoman.distributed.step_stats import ROLLBACK_REQUESTS, StepStats, packed_size

MOMENTUM_STEPS = 19
"""Number of gradients whose arithmetic mean has the same noise as an exponential moving average with decay 0.9."""
SMOOTHING = 0.9
"""Decay of the moving average of the learning-rate factor, per synchronisation."""


class LocalSteps:
    """Local updates with an outer optimizer.

    A worker's gradient is noisier than the global batch's. Adam divides by noise and signal together, so the mean of
    the workers' steps is shorter than one step on the global batch. The ratio is estimated from how much the workers'
    deltas differ, and `learning_rate_factor` compensates for it.
    """

    def __init__(
        self,
        cluster: Cluster,
        parameters: Sequence[nn.Parameter],
        every: int,
        wire_format: str,
        outer_learning_rate: float,
        outer_momentum: float,
        *,
        streaming: bool,
    ) -> None:
        self._cluster = cluster
        self._parameters = list(parameters)
        self._every, self._wire_format, self._streaming = every, wire_format, streaming
        self._outer_learning_rate, self._outer_momentum = outer_learning_rate, outer_momentum
        count = every if streaming else 1
        self._fragments = split_evenly(self._parameters, count)
        self._anchor = flatten(self._parameters)
        """All weights after the last synchronisation of their fragment, equal on all workers."""
        self._anchors = [anchor for (anchor,) in split_evenly([self._anchor], count)]
        """Views of each fragment's part."""
        self._momentum = [torch.zeros_like(anchor) for anchor in self._anchors]
        self._factor = 1.0
        self._reset()

    def _reset(self) -> None:
        self._pending: Callable[[], Tensor] | None = None
        """Waits for the fragment that is being averaged."""
        self._unsent: Tensor | None = None
        """Packed stats of the steps since the last message."""
        self._arrived: Tensor | None = None
        self._steps = 0
        self._next_fragment = 0

    @torch.no_grad()
    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:
        """Rescale to the gradient of this worker's share alone, and finish the fragment that was being averaged."""
        scale = batch_tokens / stats.target_tokens if stats.target_tokens else 0.0
        for parameter in self._parameters:
            gradient_of(parameter).mul_(scale)
        self._arrived = self._pending() if self._pending is not None else None
        self._pending = None
        packed = stats.pack()
        self._unsent = packed if self._unsent is None else self._unsent + packed
        self._steps += 1
        return stats

    @torch.no_grad()
    def synchronize(self, *, flush: bool, rollback: bool = False) -> StepStats | None:
        if rollback and self._unsent is not None:
            self._unsent[ROLLBACK_REQUESTS] = 1.0
        arrived, self._arrived = self._arrived, None
        if flush or (not self._streaming and self._steps >= self._every):
            if self._steps:
                summed = self._average_all()
                arrived = summed if arrived is None else arrived + summed
        elif self._streaming:
            self._pending = self._start_average(self._next_fragment)
            self._next_fragment = (self._next_fragment + 1) % len(self._fragments)
        return None if arrived is None else StepStats.unpack(arrived)

    @property
    def in_sync(self) -> bool:
        return self._steps == 0 and self._pending is None

    @property
    def common_weights(self) -> Sequence[Tensor]:
        parts = torch.split(self._anchor, [parameter.numel() for parameter in self._parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]

    @property
    def learning_rate_factor(self) -> float:
        return min(self._factor, float(self._cluster.world_size**0.5))

    @property
    def needs_recovery_point(self) -> bool:
        return not self._streaming

    def _average_all(self) -> Tensor:
        """Average all fragments now, and return the summed stats."""
        stats = [self._start_average(fragment)() for fragment in range(len(self._fragments))]
        self._steps, self._pending = 0, None
        return sum(stats[1:], stats[0])

    def _start_average(self, number: int) -> Callable[[], Tensor]:
        """Start to average the change of a fragment. Call the result to take the outer step."""
        fragment, anchor, momentum = self._fragments[number], self._anchors[number], self._momentum[number]
        stats = self._unsent if self._unsent is not None else anchor.new_zeros(packed_size(self._cluster.world_size))
        self._unsent = None
        delta = anchor - flatten(fragment)
        message = torch.cat([stats, delta.square().sum().view(1)])
        wait = _start_mean(self._cluster, delta, message, self._wire_format)

        def finish() -> Tensor:
            mean_delta, summed = wait()
            self._estimate_factor(float(mean_delta.square().sum()), float(summed[-1]) / self._cluster.world_size)
            momentum.mul_(self._outer_momentum).add_(mean_delta)
            anchor.sub_(self._outer_learning_rate * (mean_delta + self._outer_momentum * momentum))
            unflatten_into(anchor, fragment)
            return summed[:-1]

        return finish

    def _estimate_factor(self, mean_norm_sq: float, worker_norm_sq: float) -> None:
        """Update the learning-rate factor from the squared norm of the mean delta and the mean of the workers' own."""
        if worker_norm_sq > 0:
            ratio = mean_norm_sq / worker_norm_sq
            estimate = step_length_ratio(ratio, self._cluster.world_size, MOMENTUM_STEPS + self._every)
            self._factor = SMOOTHING * self._factor + (1 - SMOOTHING) * estimate

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "exchange/momentum": torch.cat(self._momentum),
            "exchange/learning_rate_factor": torch.tensor(self._factor),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restart from the present weights, which are equal on all workers."""
        self._factor = float(state.get("exchange/learning_rate_factor", 1.0))
        self._anchor.copy_(flatten(self._parameters))
        momentum = state.get("exchange/momentum")
        sizes = [len(anchor) for anchor in self._anchors]
        if momentum is not None:
            # Copies: the outer step changes them in place, and the state may be a recovery point that is used again.
            self._momentum = [part.to(self._anchors[0].device, copy=True) for part in torch.split(momentum, sizes)]
        else:
            self._momentum = [torch.zeros_like(anchor) for anchor in self._anchors]
        self._reset()


def step_length_ratio(norm_ratio: float, world_size: int, steps: int) -> float:
    """Length of Adam's step on the global batch, relative to the mean of its workers' steps.

    `norm_ratio`: squared norm of the workers' mean delta over that of one worker's delta, from 1 if all are equal to
    1 / world_size if they are independent. A delta averages the noise of `steps` gradients; from that follows the noise
    of a single one.
    """
    noise = steps * max(0.0, 1 - norm_ratio) / max(norm_ratio - 1 / world_size, 1e-3)  # noise over signal, one worker
    return float(((1 + noise) / (1 + noise / world_size)) ** 0.5)


def _start_mean(
    cluster: Cluster, delta: Tensor, stats: Tensor, wire_format: str
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Start to average over all workers. Call the result for the mean delta and the summed stats."""
    stats = stats.clone()
    if cluster.world_size == 1:
        return lambda: (delta, stats)
    wait_for_stats = cluster.all_reduce_async(stats)
    if wire_format == "int8":
        # Sums of 8-bit numbers do not fit into 8 bits: every worker receives all deltas and sums them.
        gather = cluster.all_gather_async(quantize(delta))

        def mean_of_gathered() -> tuple[Tensor, Tensor]:
            wait_for_stats()
            deltas = [dequantize(part, delta.numel()) for part in gather()]
            return sum(deltas[1:], deltas[0]) / cluster.world_size, stats

        return mean_of_gathered
    message = delta.bfloat16()
    wait = cluster.all_reduce_async(message)

    def mean_of_sum() -> tuple[Tensor, Tensor]:
        wait_for_stats()
        wait()
        return message.float() / cluster.world_size, stats

    return mean_of_sum
