"""The interface of all exchange methods."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from dragoman.distributed.step_stats import StepStats


class UnmergedSteps(NamedTuple):
    """Local steps of a worker that the others do not have, or only in a part of the weights."""

    steps: int = 0
    target_tokens: int = 0
    """Of this worker's shares; at least 1 if there is a step."""
    batch_tokens: int = 0
    """Target tokens of their global batches."""
    since: int = 0
    """Steps since all weights were synchronised."""
    fragments: int = 0
    """Fragments of the weights that were averaged since."""

    @property
    def weight(self) -> float:
        """This worker's part of the target tokens."""
        return self.target_tokens / max(1, self.batch_tokens)


class Exchange(Protocol):
    """A method to update the weights of all workers from their gradients."""

    def all_reduce(self, stats: StepStats, batch_tokens: int) -> StepStats:
        """Replace each parameter's gradient by the one to update with, and return its stats.

        `batch_tokens`: target tokens of the global batch, by which the gradients have been divided.
        """
        ...

    def synchronize(self, *, flush: bool, rollback: bool = False, last: bool = False) -> StepStats | None:
        """After the update: the stats summed over all workers, or None if they did not synchronise in this step.

        `flush`: the weights must be equal on all workers now, because they are to be evaluated or saved. `rollback`:
        this worker has skipped too many steps. All workers learn it from the stats, and roll back together. `last`: the
        run ends here, so that late workers could not be merged later, and are waited for.
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
    def unmerged(self) -> UnmergedSteps:
        """This worker's updates since the last synchronisation."""
        ...

    def finished_fragment(self) -> dict[str, Tensor]:
        """What a worker needs to finish the last fragment that this one has finished."""
        ...

    def finish_fragment(self, finished: Mapping[str, Tensor]) -> None:
        """Finish a fragment that this worker has sent, and others have finished before a worker was lost."""
        ...

    def leave_world(self) -> None:
        """After a loss: forget what was to be sent to the workers of the lost world, but not the local steps."""
        ...

    def merge(self, weight: float) -> None:
        """With all workers of a new world: add the sum of the workers' changes since their last synchronisation, each
        with its weight, to the weights of the last one. A worker without such a change has a weight of 0."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint must keep."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...
