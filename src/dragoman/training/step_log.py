"""The step log: each step becomes an event as soon as its numbers have arrived from the device."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.batching.data_loader import WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.events import Event, StepDone, StepSkipped
from dragoman.telemetry.compile_timer import CompileTimer
from dragoman.telemetry.step_timing import Part, split_step
from dragoman.training.async_scalars import AsyncScalars
from dragoman.training.train_step import WorkerGradients

MAX_UNREAD_STEPS = 2
"""Steps on a GPU whose losses may still be on their way: reading at once would make the GPU wait for Python."""


@dataclass(frozen=True)
class SyncTimes:
    """When the workers were ready for an exchange, in the world of that moment."""

    ready_s: Sequence[float] = ()
    """Time each worker took until it was ready, by rank; empty where there was no exchange."""
    straggler_s: float = 0.0
    """How much later than this worker the last one was ready."""

    @classmethod
    def of(cls, stats: StepStats, rank: int) -> "SyncTimes":
        return cls(stats.ready_s, stats.straggler_s(rank))


@dataclass(frozen=True)
class StepRecord:
    """A step that was taken. Its numbers may not have arrived yet."""

    batch: WorkerBatch
    step: int
    target_tokens: int
    """Target tokens that the loss sums are over."""
    learning_rate: float
    compute_s: float
    compile_s: float
    sync: SyncTimes
    sent_bytes: int
    worker_gradient_norm_sq: float
    micro_batches: int
    scalars: AsyncScalars
    """The two loss sums and the gradient norm."""

    def numbers(self) -> tuple[float, float, float]:
        """Loss and negative log-likelihood a token, and the gradient norm."""
        loss_sum, nll_sum, norm = self.scalars.values()
        return loss_sum / max(self.target_tokens, 1), nll_sum / max(self.target_tokens, 1), norm

    def is_finite(self) -> bool:
        loss, _, norm = self.numbers()
        return math.isfinite(loss) and math.isfinite(norm)


@dataclass
class _TimedRecord:
    """A step with its seconds by part."""

    record: StepRecord
    spent_s: dict[Part, float]

    def add_time(self, more_s: Mapping[Part, float]) -> None:
        for part, seconds in more_s.items():
            self.spent_s[part] += seconds


class StepLog:
    """Records steps in order, and counts the ones skipped in a row."""

    def __init__(
        self, cluster: Cluster, take_times: Callable[[], dict[Part, float]], record: Callable[[Event], None]
    ) -> None:
        self._cluster = cluster
        self._take_times = take_times
        """Seconds by part since its last call."""
        self._record = record
        self._unread: deque[_TimedRecord] = deque()
        self.consecutive_skips = 0
        self._compile_timer = CompileTimer()
        self._bytes_recorded = 0
        self._last_sync = SyncTimes()
        """Of the last synchronisation of local steps, until a step is recorded with it."""

    def note_sync(self, stats: StepStats) -> None:
        """Keep the times of a synchronisation for the next step of a method that has none of its own."""
        self._last_sync = SyncTimes.of(stats, self._cluster.rank)

    def make_record(
        self,
        batch: WorkerBatch,
        gradients: WorkerGradients,
        stats: StepStats,
        step: int,
        learning_rate: float,
        norm: Tensor,
        *,
        synchronous: bool,
    ) -> StepRecord:
        """The record of a step, whose numbers are on their way from the device."""
        sync = SyncTimes.of(stats, self._cluster.rank) if synchronous else self._last_sync
        self._last_sync = SyncTimes()
        sent_bytes, self._bytes_recorded = self._cluster.bytes_sent - self._bytes_recorded, self._cluster.bytes_sent
        return StepRecord(
            batch=batch,
            step=step,
            target_tokens=int(stats.target_tokens),
            learning_rate=learning_rate,
            compute_s=gradients.compute_s,
            compile_s=self._compile_timer.take(),
            sync=sync,
            sent_bytes=sent_bytes,
            worker_gradient_norm_sq=stats.worker_gradient_norm_sq,
            micro_batches=gradients.micro_batches,
            scalars=AsyncScalars(torch.cat([stats.losses, norm.reshape(1)])),
        )

    def add(self, record: StepRecord, *, wait: bool) -> None:
        """Add a step. Without `wait`, the last few may stay unread for now."""
        self._unread.append(_TimedRecord(record, self._take_times()))
        self._read(all_but=0 if wait else MAX_UNREAD_STEPS)

    def flush(self) -> None:
        """Record all unread steps. The wait for their numbers counts as time of the last step."""
        if self._unread:
            last = self._unread[-1]
            last.record.scalars.values()
            last.add_time(self._take_times())
            self._read(all_but=0)

    def _read(self, all_but: int) -> None:
        while len(self._unread) > all_but:
            timed = self._unread.popleft()
            if timed.record.is_finite():
                self.consecutive_skips = 0
                self._record(_step_done(timed))
            else:
                self.consecutive_skips += 1
                self._record(self._step_skipped(timed.record))

    def _step_skipped(self, record: StepRecord) -> StepSkipped:
        loss, _, norm = record.numbers()
        return StepSkipped(step=record.step, loss=loss, gradient_norm=norm, consecutive=self.consecutive_skips)


def _step_done(timed: _TimedRecord) -> StepDone:
    record, batch = timed.record, timed.record.batch
    loss, nll, norm = record.numbers()
    parts = split_step(timed.spent_s, record.compute_s, record.sync.straggler_s)
    return StepDone(
        step=record.step,
        epoch=batch.position.epoch,
        batch=batch.position.batch,
        loss=loss,
        nll=nll,
        gradient_norm=norm,
        learning_rate=record.learning_rate,
        source_tokens=batch.source_tokens,
        target_tokens=batch.target_tokens,
        pairs=batch.global_pairs,
        step_s=parts.step_s,
        data_s=parts.data_s,
        compute_s=record.compute_s,
        compile_s=record.compile_s,
        communication_s=parts.communication_s,
        straggler_s=parts.straggler_s,
        optimizer_s=parts.optimizer_s,
        ready_s=list(record.sync.ready_s),
        sent_bytes=record.sent_bytes,
        worker_gradient_norm_sq=record.worker_gradient_norm_sq,
        share=batch.worker_target_tokens / batch.target_tokens,
        micro_batches=record.micro_batches,
    )
