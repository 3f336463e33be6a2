"""Judgement of runs on several hosts, from their events alone: pure functions, so that tests can plant faults."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from dragoman.batching.batch_plan import Lengths, plan_epoch
from dragoman.events import SharesChanged, StepDone

SETTLED = 0.1
"""Shares have followed when they are this close to their final value, as a part of it ..."""
PROPORTIONAL = 1 / 3
"""... and if that is this close to the share that the host's speed deserves."""


@dataclass(frozen=True)
class PlannedBatch:
    """A batch of the plan: its position, and its number of pairs."""

    epoch: int
    batch: int
    pairs: int


def planned_batches(lengths: Lengths, tokens: int, seed: int) -> Iterator[PlannedBatch]:
    """The global batches of a run in order, epoch after epoch, without end."""
    for epoch in count():
        plan = plan_epoch(lengths, tokens, seed, epoch)
        yield from (PlannedBatch(epoch, number, len(plan[number])) for number in range(len(plan)))


@dataclass(frozen=True)
class StepFaults:
    """Differences between the steps that were done and the plan. A run without faults has only zeros."""

    lost_steps: int
    """Steps that no worker did."""
    unplanned_steps: int
    """Steps in which a worker trained on another batch than the plan's."""
    lost_pairs: int
    """Pairs of planned batches that no step trained on."""
    repeated_pairs: int
    """Pairs on which a second step trained. A step that is done again after a restart, with its batch, is no second."""


def judge_steps(done: Iterable[StepDone], plan: Sequence[PlannedBatch]) -> StepFaults:
    """Compare the steps of all workers with the plan of all steps that the run reached."""
    trained: dict[int, set[PlannedBatch]] = {}
    for step in done:
        trained.setdefault(step.step, set()).add(PlannedBatch(step.epoch, step.batch, step.pairs))
    planned = dict(enumerate(plan, 1))
    times = Counter(batch for batches in trained.values() for batch in batches)
    return StepFaults(
        lost_steps=len(planned.keys() - trained.keys()),
        unplanned_steps=sum(batches != {planned.get(step)} for step, batches in trained.items()),
        lost_pairs=sum(batch.pairs for batch in plan if batch not in times),
        repeated_pairs=sum(batch.pairs * (number - 1) for batch, number in times.items()),
    )


def steps_until_followed(
    changes: Sequence[SharesChanged], slowed_at: int, rank: int, deserved: float
) -> tuple[int | None, float | None]:
    """Steps from a host's slowdown until its share had followed, or None if it never did; and its final share."""
    later = [(change.step - slowed_at, change.shares[rank]) for change in changes if change.step > slowed_at]
    if not later:
        return None, None
    final = later[-1][1]
    if abs(final - deserved) > PROPORTIONAL * deserved:
        return None, final
    return next(steps for steps, share in later if abs(share - final) <= SETTLED * final), final
