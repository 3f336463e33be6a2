"""Local steps (DiLoCo): each worker updates on its own share, and every few steps the weights are synchronised.

The change of the weights since the last synchronisation is averaged and used as the gradient of an outer optimizer with
Nesterov momentum (DiLoCo, Douillard et al. 2023). The weights are split into fragments, and one after the other is
averaged while the next steps compute: the link is always busy and no worker waits for it (Streaming DiLoCo, Douillard
et al. 2025). What a worker learns meanwhile is added to the new weights, so that none of it is lost.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.delta_sketch import SKETCH_SIZE, DeltaSketch
from dragoman.distributed.exchange.flat_tensors import flatten, gradient_of, split_evenly, unflatten_into
from dragoman.distributed.exchange.interface import UnmergedSteps
from dragoman.distributed.exchange.quantized_mean import QuantizedMean
from dragoman.distributed.exchange.side_stream import SideStream
from dragoman.distributed.exchange.step_length import StepLength
from dragoman.distributed.exchange.synchronous import sum_changes
from dragoman.distributed.step_stats import ROLLBACK_REQUESTS, StepStats, packed_size

QUANTIZED_BITS = {"int8": 8, "int4": 4, "int2": 2}
"""Bits of a value, by wire format."""


class LocalSteps:
    """Local updates with an outer optimizer. Their steps are made longer, unless `lengthen_steps` is False."""

    def __init__(
        self,
        cluster: Cluster,
        parameters: Sequence[nn.Parameter],
        every: int,
        wire_format: str,
        outer_learning_rate: float,
        outer_momentum: float,
        *,
        overlap: int,
        lengthen_steps: bool = True,
        quorum: float = 1.0,
        grace_s: float = 0.0,
    ) -> None:
        """`every`: steps between two averages of the same fragment; `overlap`: steps during which one is averaged.

        `quorum` and `grace_s`: see `WorkerProcessGroup.wait_for_quorum`.
        """
        self._cluster = cluster
        self._parameters = list(parameters)
        self._every, self._overlap = every, overlap
        self._lengthen_steps, self._quorum, self._grace_s = lengthen_steps, quorum, grace_s
        self._outer_learning_rate, self._outer_momentum = outer_learning_rate, outer_momentum
        self._background = ThreadPoolExecutor(1, "average weights")
        self._side_stream = SideStream(self._parameters[0].device)
        self._anchor = flatten(self._parameters)
        """All weights after the last synchronisation of their fragment, equal on all workers."""
        self._momentum = torch.zeros_like(self._anchor)
        count = -(-every // overlap)
        self._whole = self._make_fragment(self._parameters, self._anchor, self._momentum, wire_format)
        self._fragments = [
            self._make_fragment(tensors, anchor, momentum, wire_format)
            for tensors, (anchor,), (momentum,) in zip(
                *(split_evenly(each, count) for each in (self._parameters, [self._anchor], [self._momentum])),
                strict=True,
            )
        ]
        self._step_length = StepLength(cluster.world_size, every)
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._pending: _SentFragment | None = None
        """The fragment that is being averaged."""
        self._pending_steps = 0
        """Steps computed since then."""
        self._finished_fragments = 0
        self._unsent: Tensor | None = None
        """Packed stats of the steps since the last message."""
        self._steps = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=len(self._fragments) * self._overlap)
        """Target tokens of this worker's share and of the batch, in the steps since every fragment was averaged."""

    @torch.no_grad()
    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:
        """Rescale to the gradient of this worker's share alone."""
        scale = batch_tokens / stats.target_tokens if stats.target_tokens else 0.0
        torch._foreach_mul_([gradient_of(parameter) for parameter in self._parameters], scale)
        self._pending_steps += 1
        packed = stats.pack()
        self._unsent = packed if self._unsent is None else self._unsent + packed
        self._steps += 1
        self._recent.append((int(stats.target_tokens), batch_tokens))
        return stats

    @torch.no_grad()
    def synchronize(self, *, flush: bool, rollback: bool = False, last: bool = False) -> StepStats | None:
        if rollback and self._unsent is not None:
            self._unsent[ROLLBACK_REQUESTS] = 1.0
        # After the update, which a GPU then computes while this thread waits.
        waits_for_all = last or self._quorum == 1
        arrived = None
        if self._pending is not None and (flush or self._pending_steps >= self._overlap):
            if not waits_for_all:
                self._cluster.wait_for_quorum(self._quorum, self._grace_s)
            arrived = self._finish(self._pending)
            self._pending = None
            self._finished_fragments += 1
        if flush and self._steps:
            if not waits_for_all:
                self._cluster.arrive()
                self._cluster.wait_for_quorum(self._quorum, self._grace_s)
            sums = self._finish(self._start_average(self._whole))
            arrived = sums if arrived is None else arrived + sums
            self._begin_interval()
        elif not flush and self._pending is None:
            if not waits_for_all:
                self._cluster.arrive()
            fragment = self._fragments[self._finished_fragments % len(self._fragments)]
            self._pending, self._pending_steps = self._start_average(fragment), 0
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
        return min(self._step_length.ratio, float(self._cluster.world_size**0.5)) if self._lengthen_steps else 1.0

    @property
    def unmerged(self) -> UnmergedSteps:
        if self.in_sync:
            return UnmergedSteps()
        tokens, batch_tokens = map(sum, zip(*self._recent, strict=True))
        return UnmergedSteps(
            len(self._recent), max(1, tokens), batch_tokens, since=self._steps, fragments=self._finished_fragments
        )

    def finished_fragment(self) -> dict[str, Tensor]:
        fragment = self._fragments[(self._finished_fragments - 1) % len(self._fragments)]
        factor = torch.tensor(self._step_length.ratio, dtype=torch.float64)
        return {"anchor": fragment.anchor, "momentum": fragment.momentum, "learning_rate_factor": factor}

    @torch.no_grad()
    def finish_fragment(self, finished: Mapping[str, Tensor]) -> None:
        assert self._pending is not None
        self._pending.fragment.momentum.copy_(finished["momentum"])
        self._pending.move_to(finished["anchor"])
        self._step_length.ratio = float(finished["learning_rate_factor"])
        self._pending = None
        self._finished_fragments += 1

    def leave_world(self) -> None:
        self._unsent = None

    @torch.no_grad()
    def merge(self, weight: float) -> None:
        # Not multiplied by 0: a change that is not finite would spoil the sum.
        change = flatten(self._parameters) - self._anchor if weight else torch.zeros_like(self._anchor)
        self._anchor.add_(sum_changes(self._cluster, weight * change))
        unflatten_into(self._anchor, self._parameters)
        self._begin_interval()

    def _start_average(self, fragment: "_Fragment") -> "_SentFragment":
        """Start to average the change of a fragment."""
        stats = self._unsent
        self._unsent = None
        if stats is None:
            stats = self._anchor.new_zeros(packed_size(self._cluster.world_size))
        sent = flatten(fragment.tensors)
        delta = fragment.anchor - sent
        message = torch.cat([stats, fragment.sketch.of(delta)])
        wait_for_stats = sum_on_host(self._cluster, self._background, self._side_stream, message)
        return _SentFragment(fragment, sent, wait_for_stats, fragment.mean.start(delta))

    def _finish(self, sent: "_SentFragment") -> Tensor:
        """Wait for the mean, and take the outer step. Returns the stats that came with it."""
        message = sent.wait_for_stats()
        mean_delta = sent.wait_for_mean()
        self._step_length.update(message[-SKETCH_SIZE:])
        momentum = sent.fragment.momentum.mul_(self._outer_momentum).add_(mean_delta)
        sent.move_to(sent.fragment.anchor - self._outer_learning_rate * (mean_delta + self._outer_momentum * momentum))
        return message[:-SKETCH_SIZE]

    def _make_fragment(
        self, tensors: Sequence[Tensor], anchor: Tensor, momentum: Tensor, wire_format: str
    ) -> "_Fragment":
        sketch = DeltaSketch(len(anchor), anchor.device)
        return _Fragment(tensors, anchor, momentum, self._make_mean(wire_format), sketch)

    def _make_mean(self, wire_format: str) -> "Mean":
        if self._cluster.world_size > 1 and wire_format in QUANTIZED_BITS:
            return QuantizedMean(self._cluster, self._background, self._side_stream, QUANTIZED_BITS[wire_format])
        return Bf16Mean(self._cluster)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "exchange/momentum": self._momentum.clone(),
            "exchange/learning_rate_factor": torch.tensor(self._step_length.ratio),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restart from the present weights, which are equal on all workers."""
        self._step_length.ratio = float(state.get("exchange/learning_rate_factor", 1.0))
        self._anchor.copy_(flatten(self._parameters))
        momentum = state.get("exchange/momentum")
        if momentum is None:
            self._momentum.zero_()
        else:
            self._momentum.copy_(momentum)
        self._begin_interval()
        for fragment in (self._whole, *self._fragments):
            fragment.mean.reset()


class Mean(Protocol):
    """Means of the workers' successive values."""

    def start(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to average in the background. Call the result for the mean, the same on all workers."""
        ...

    def reset(self) -> None: ...


class Bf16Mean:
    """Means of values in bfloat16."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def start(self, values: Tensor) -> Callable[[], Tensor]:
        message = values.bfloat16() if self._cluster.world_size > 1 else values
        wait = self._cluster.all_reduce_async(message)

        def finish() -> Tensor:
            wait()
            return message.float() / self._cluster.world_size

        return finish

    def reset(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True)
class _Fragment:
    """A part of the weights."""

    tensors: Sequence[Tensor]
    """Views of the parameters."""
    anchor: Tensor
    momentum: Tensor
    mean: Mean
    sketch: DeltaSketch


@dataclass(frozen=True)
class _SentFragment:
    """A fragment that is being averaged."""

    fragment: _Fragment
    sent: Tensor
    """Its weights when that began."""
    wait_for_stats: Callable[[], Tensor]
    wait_for_mean: Callable[[], Tensor]

    def move_to(self, anchor: Tensor) -> None:
        """Continue from a new anchor, with all that this worker has learned meanwhile."""
        self.fragment.anchor.copy_(anchor)
        unflatten_into(self.fragment.anchor + (flatten(self.fragment.tensors) - self.sent), self.fragment.tensors)


def sum_on_host(
    cluster: Cluster, background: ThreadPoolExecutor, side_stream: SideStream, message: Tensor
) -> Callable[[], Tensor]:
    """Start to sum a short message over all workers. Call the result for the sums, in memory that Python can read."""
    if message.device.type == "cpu":
        wait = cluster.all_reduce_async(message)

        def finish() -> Tensor:
            wait()
            return message

        return finish
    with side_stream.after_compute(message):
        sent = message.clone()

    world = cluster.collectives

    def add() -> Tensor:
        with side_stream.active():
            total = world.all_reduce(side_stream.copy_to(world.message_device, sent))
            return side_stream.copy_to(torch.device("cpu"), total)

    return background.submit(add).result
