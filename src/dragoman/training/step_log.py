"""The step log: records each step as an event, once its loss and its times are known."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from dragoman.batching.data_loader import WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.events import Event, StepDone, StepSkipped
from dragoman.telemetry.step_parts import split_step
from dragoman.telemetry.step_timing import StepSpans
from dragoman.training.async_scalars import AsyncScalars
from dragoman.training.train_step import WorkerGradients

MAX_UNREAD_STEPS = 2
"""Steps whose losses and times may stay on a GPU for now: reading them at once would make the GPU wait for Python."""


@dataclass(frozen=True)
class SyncTimes:
    """Times until the workers were ready for an exchange. They refer to the ranks of the world of that moment."""

    ready_s: Sequence[float] = ()
    """Time each worker took until it was ready, by rank; empty where there was no exchange."""
    straggler_s: float = 0.0
    """Time that this worker waited for the last one to be ready."""

    @classmethod
    def of(cls, stats: StepStats, rank: int) -> "SyncTimes":
        return cls(stats.ready_s, stats.straggler_s(rank))


@dataclass(frozen=True)
class StepRecord:
    """A completed step. Its loss and gradient norm may still be on the device."""

    batch: WorkerBatch
    step: int
    target_tokens: int
    """Number of target tokens in the loss sums."""
    learning_rate: float
    alone: bool
    """True if there was no other worker."""
    sync: SyncTimes
    sent_bytes: int
    worker_gradient_norm_sq: float
    micro_batches: int
    scalars: AsyncScalars
    """The two loss sums and the gradient norm."""

    def numbers(self) -> tuple[float, float, float]:
        """Loss and negative log-likelihood per token, and the gradient norm."""
        loss_sum, nll_sum, norm = self.scalars.values()
        return loss_sum / max(self.target_tokens, 1), nll_sum / max(self.target_tokens, 1), norm

    def is_finite(self) -> bool:
        loss, _, norm = self.numbers()
        return math.isfinite(loss) and math.isfinite(norm)


@dataclass
class _TimedRecord:
    """A step and its times."""

    record: StepRecord
    spans: StepSpans
    consecutive_skips: int | None = None
    """Steps skipped in a row up to this one; None until its loss is read."""


class StepLog:
    """Records steps in order, and counts the ones skipped in a row."""

    def __init__(self, cluster: Cluster, take_spans: Callable[[], StepSpans], record: Callable[[Event], None]) -> None:
        self._cluster = cluster
        self._take_spans = take_spans
        """The time since its last call."""
        self._record = record
        self._unread: deque[_TimedRecord] = deque()
        self.consecutive_skips = 0
        self._bytes_recorded = 0
        self._last_sync = SyncTimes()
        """Of the last synchronisation of local steps, until the next step's record takes it."""

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
        """The record of a step. Starts to copy its numbers from the device."""
        sync = SyncTimes.of(stats, self._cluster.rank) if synchronous else self._last_sync
        self._last_sync = SyncTimes()
        sent_bytes, self._bytes_recorded = self._cluster.bytes_sent - self._bytes_recorded, self._cluster.bytes_sent
        return StepRecord(
            batch=batch,
            step=step,
            target_tokens=int(stats.target_tokens),
            learning_rate=learning_rate,
            alone=len(stats.ready_s) == 1,
            sync=sync,
            sent_bytes=sent_bytes,
            worker_gradient_norm_sq=stats.worker_gradient_norm_sq,
            micro_batches=gradients.micro_batches,
            scalars=AsyncScalars(torch.cat([stats.losses, norm.reshape(1)])),
        )

    def add(self, record: StepRecord, *, wait: bool) -> None:
        """Add a step. With `wait`, its loss is read, and counts if it is not finite.

        The last `MAX_UNREAD_STEPS` steps may stay unrecorded, where losses are not read or a GPU knows the times later.
        """
        spans = self._take_spans()
        self._unread.append(_TimedRecord(record, spans))
        if wait:
            for timed in self._unread:
                self._count_skips(timed)
        self._read(all_but=0 if wait and spans.on_device is None else MAX_UNREAD_STEPS)

    def flush(self) -> None:
        """Record all unread steps. The wait for their numbers counts as time of the last step."""
        if self._unread:
            last = self._unread[-1]
            last.record.scalars.values()
            last.spans.extend(self._take_spans())
            self._read(all_but=0)

    def _read(self, all_but: int) -> None:
        while len(self._unread) > all_but:
            timed = self._unread.popleft()
            skips = self._count_skips(timed)
            self._record(_step_skipped(timed.record, skips) if skips else _step_done(timed))

    def _count_skips(self, timed: _TimedRecord) -> int:
        """Count a step once, in the order of the steps. Returns how many were skipped in a row up to it."""
        if timed.consecutive_skips is None:
            self.consecutive_skips = 0 if timed.record.is_finite() else self.consecutive_skips + 1
            timed.consecutive_skips = self.consecutive_skips
        return timed.consecutive_skips


def _step_skipped(record: StepRecord, consecutive: int) -> StepSkipped:
    loss, _, norm = record.numbers()
    return StepSkipped(step=record.step, loss=loss, gradient_norm=norm, consecutive=consecutive)


def _step_done(timed: _TimedRecord) -> StepDone:
    record, batch = timed.record, timed.record.batch
    loss, nll, norm = record.numbers()
    times = split_step(timed.spans.read(alone=record.alone), record.sync.straggler_s)
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
        **asdict(times),
        overlapped_s=timed.spans.overlapped_s,
        ready_s=list(record.sync.ready_s),
        sent_bytes=record.sent_bytes,
        worker_gradient_norm_sq=record.worker_gradient_norm_sq,
        share=batch.worker_target_tokens / batch.target_tokens,
        micro_batches=record.micro_batches,
    )
