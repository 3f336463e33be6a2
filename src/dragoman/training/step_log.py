"""The steps that were taken, told as soon as their numbers have arrived."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dragoman.batching.data_loader import WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.events import Event, StepDone, StepSkipped
from dragoman.telemetry.step_timing import Part, split
from dragoman.training.async_scalars import AsyncScalars

UNREAD_STEPS = 2
"""Steps of a GPU whose losses may still be on their way: reading at once would let it wait for Python."""


@dataclass(frozen=True)
class StepRecord:
    """A step that was taken, whose numbers may not have been read yet."""

    share: WorkerBatch
    step: int
    tokens: int
    """Target tokens that the sums of losses are over."""
    rate: float
    compute_s: float
    compile_s: float
    ready_s: list[float]
    """How long each worker took until it was ready to exchange, by rank; empty where this step had no exchange."""
    sent_bytes: int
    spread: float
    """Mean square norm of the workers' own gradients; 0 where it was not measured."""
    pieces: int
    reading: AsyncScalars
    """Sums of both losses, and the norm of the gradient."""

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Both losses a token, and the norm."""
        loss_sum, nll_sum, norm = self.reading.values()
        return loss_sum / max(self.tokens, 1), nll_sum / max(self.tokens, 1), norm

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, (self.numbers[0], self.numbers[2])))


@dataclass
class _Untold:
    """A step with the seconds that it took, by part."""

    taken: StepRecord
    spent_s: dict[Part, float]

    def take_longer(self, more_s: Mapping[Part, float]) -> None:
        for part, seconds in more_s.items():
            self.spent_s[part] += seconds


class StepLog:
    """Records steps in their order, and how many were skipped in a row."""

    def __init__(
        self, cluster: Cluster, tick: Callable[[], dict[Part, float]], record: Callable[[Event], None]
    ) -> None:
        self._cluster = cluster
        self._tick = tick
        """Gives the seconds since it was last called, by part."""
        self._record = record
        self._unread: deque[_Untold] = deque()
        self.skipped_in_a_row = 0

    def add(self, taken: StepRecord, *, wait: bool) -> None:
        """Take in a step. Without `wait`, the last few may stay untold for now."""
        self._unread.append(_Untold(taken, self._tick()))
        self._tell(all_but=0 if wait else UNREAD_STEPS)

    def tell_all(self) -> None:
        """Tell what is untold. Waiting for its numbers is waiting for the last steps' computing."""
        if self._unread:
            last = self._unread[-1]
            last.taken.reading.values()
            last.take_longer(self._tick())
            self._tell(all_but=0)

    def _tell(self, all_but: int) -> None:
        while len(self._unread) > all_but:
            untold = self._unread.popleft()
            if untold.taken.is_finite:
                self.skipped_in_a_row = 0
                self._record(self._done(untold))
            else:
                self.skipped_in_a_row += 1
                self._record(self._skipped(untold.taken))

    def _skipped(self, taken: StepRecord) -> StepSkipped:
        loss, _, norm = taken.numbers
        return StepSkipped(step=taken.step, loss=loss, gradient_norm=norm, consecutive=self.skipped_in_a_row)

    def _done(self, untold: _Untold) -> StepDone:
        taken, share = untold.taken, untold.taken.share
        loss, nll, norm = taken.numbers
        spent = split(untold.spent_s, taken.compute_s, taken.ready_s, self._cluster.rank)
        return StepDone(
            step=taken.step,
            epoch=share.position.epoch,
            batch=share.position.batch,
            loss=loss,
            nll=nll,
            gradient_norm=norm,
            learning_rate=taken.rate,
            source_tokens=share.source_tokens,
            target_tokens=share.target_tokens,
            pairs=share.global_pairs,
            step_s=spent.step_s,
            data_s=spent.data_s,
            compute_s=taken.compute_s,
            compile_s=taken.compile_s,
            communication_s=spent.communication_s,
            straggler_s=spent.straggler_s,
            optimizer_s=spent.optimizer_s,
            ready_s=taken.ready_s,
            sent_bytes=taken.sent_bytes,
            worker_gradient_norm_sq=taken.spread,
            share=share.my_target_tokens / share.target_tokens,
            micro_batches=taken.pieces,
        )
