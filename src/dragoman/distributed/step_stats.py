"""Step statistics: the numbers sent together with a gradient, so that no step needs a second message."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LOSSES = 2
SCALARS = 6
"""Single numbers between the two loss sums and the times."""
ROLLBACK_REQUESTS = LOSSES + 3
"""Place of `StepStats.rollback_requests` in the packed vector."""


@dataclass(frozen=True)
class StepStats:
    """Statistics of one step: of one worker, or summed over all of them."""

    losses: Tensor
    """Sums over target tokens of the loss with label smoothing and of the plain negative log-likelihood, [2]. They stay
    on the device: reading them would make a GPU wait for Python."""
    target_tokens: float
    """Target tokens that the sums are over."""
    compute_s: Sequence[float]
    """Compute time of each worker, by rank."""
    ready_s: Sequence[float]
    """Time each worker took from the last exchange until it was ready for this one, by rank."""
    stop_requests: float = 0.0
    event_sync_requests: float = 0.0
    rollback_requests: float = 0.0
    """Workers that have skipped too many steps in a row."""
    join_requests: float = 0.0
    """Workers that know of others which wait until they can join."""
    worker_gradient_norm_sq: float = 0.0
    """Squared norm of the workers' own gradients, weighted by their shares; 0 where it was not measured."""

    @property
    def stop_requested(self) -> bool:
        return self.stop_requests > 0

    @property
    def event_sync_requested(self) -> bool:
        return self.event_sync_requests > 0

    @property
    def rollback_requested(self) -> bool:
        return self.rollback_requests > 0

    @property
    def flush_requested(self) -> bool:
        """True if all weights must be synchronised now: the run stops, rolls back, or others join."""
        return self.stop_requested or self.rollback_requested or self.join_requests > 0

    def straggler_s(self, rank: int) -> float:
        """Time that a worker waited for the last one to be ready."""
        return max(self.ready_s) - self.ready_s[rank]

    def pack(self) -> Tensor:
        """One vector that can be summed over workers, on the device of the losses."""
        requests = [self.stop_requests, self.event_sync_requests, self.rollback_requests, self.join_requests]
        scalars = [self.target_tokens, *requests, self.worker_gradient_norm_sq]
        numbers = torch.tensor([*scalars, *self.compute_s, *self.ready_s], dtype=self.losses.dtype)
        if self.losses.is_cuda:  # From pageable memory, the copy would wait for all work of the device.
            numbers = numbers.pin_memory().to(self.losses.device, non_blocking=True)
        return torch.cat([self.losses, numbers])

    @classmethod
    def unpack(cls, packed: Tensor) -> "StepStats":
        """The reverse of `pack`. Reads all but the losses, so it waits for the device."""
        tokens, stops, syncs, rollbacks, joins, norm_sq, *times = packed[LOSSES:].tolist()
        world_size = len(times) // 2
        return cls(
            losses=packed[:LOSSES],
            target_tokens=tokens,
            compute_s=times[:world_size],
            ready_s=times[world_size:],
            stop_requests=stops,
            event_sync_requests=syncs,
            rollback_requests=rollbacks,
            join_requests=joins,
            worker_gradient_norm_sq=norm_sq,
        )


def packed_size(world_size: int) -> int:
    """Length of the packed vector in a world of this size."""
    return LOSSES + SCALARS + 2 * world_size


def at_rank(value: float, rank: int, world_size: int) -> list[float]:
    """One entry per rank: `value` at this one, 0 elsewhere. The sum over all workers has every worker's value."""
    values = [0.0] * world_size
    values[rank] = value
    return values
