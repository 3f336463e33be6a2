"""The interface that the training loop asks of every exchange method."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from dragoman.distributed.step_stats import StepStats


class Exchange(Protocol):
    """One way to turn the workers' gradients into one update."""

    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:
        """Replace each parameter's gradient by the one to update with, and return the stats that belong to it.

        `batch_tokens`: target tokens of the global batch, by which the gradients have been divided.
        """
        ...

    def synchronize(self, *, flush: bool) -> StepStats | None:
        """After the update: the stats summed over all workers, or None if they did not synchronise in this step.

        `flush`: the weights must be equal on all workers now, because they are to be evaluated or saved.
        """
        ...

    @property
    def in_sync(self) -> bool:
        """True while the weights are equal on all workers."""
        ...

    @property
    def learning_rate_factor(self) -> float:
        """Factor on the learning rate of this worker's updates."""
        ...

    @property
    def needs_recovery_point(self) -> bool:
        """True if the loss of a worker makes the others return to the last synchronisation."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint must keep."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...
