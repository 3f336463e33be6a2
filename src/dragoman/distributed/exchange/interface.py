"""The interface of all exchange methods."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from dragoman.distributed.step_stats import StepStats


class Exchange(Protocol):
    """A method to update the weights of all workers from their gradients."""

    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:
        """Replace each parameter's gradient by the one to update with, and return its stats.

        `batch_tokens`: target tokens of the global batch, by which the gradients have been divided.
        """
        ...

    def synchronize(self, *, flush: bool, rollback: bool = False) -> StepStats | None:
        """After the update: the stats summed over all workers, or None if they did not synchronise in this step.

        `flush`: the weights must be equal on all workers now, because they are to be evaluated or saved. `rollback`:
        this worker has skipped too many steps. All workers learn it from the stats, and roll back together.
        """
        ...

    @property
    def in_sync(self) -> bool:
        """True while the weights are equal on all workers."""
        ...

    @property
    def common_weights(self) -> Sequence[Tensor]:
        """The weights of the last synchronisation, by parameter: equal on all workers at any time."""
        ...

    @property
    def learning_rate_factor(self) -> float:
        """Factor on the learning rate of this worker's updates."""
        ...

    @property
    def unmerged_tokens(self) -> int:
        """Target tokens of this worker's updates that the others do not have; 0 while the weights are equal."""
        ...

    def merge(self, weight: float) -> None:
        """After a loss, with all workers of a new world: the weights of the last synchronisation, plus the sum of the
        changes since then, each with its weight. A worker that was not in the old world has a weight of 0."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint must keep."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...
