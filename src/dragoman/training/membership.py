"""Membership and recovery: workers that join, catch up, are lost or roll back; their shares and their exchange method.

After `sync` all workers of the present world have equal state, know each other's shares of the batch, and use the same
exchange method.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from dragoman.batching.data_loader import BatchStream
from dragoman.distributed.balance import ShareBalancer
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.heartbeat import HEARTBEAT_INTERVAL_S
from dragoman.distributed.process_group import Member, WorkersLateError, WorkersLostError
from dragoman.distributed.shared_storage import choose_checkpoint_writers, find_shared_storage
from dragoman.distributed.state_sync import ReplicaProgress
from dragoman.distributed.step_stats import StepStats
from dragoman.errors import DragomanError
from dragoman.events import (
    CollectiveStalled,
    Event,
    MessagesRejected,
    RolledBack,
    SharesChanged,
    WorkerFailed,
    WorkersLost,
)
from dragoman.late_worker_events import WorkersLate
from dragoman.settings import Settings
from dragoman.telemetry.event_messages import divergence_remedy
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training import checkpoint
from dragoman.training.catch_up import CatchUp
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.due_work import DueWork, due_after
from dragoman.training.exchange_selection import ExchangeSelection
from dragoman.training.fingerprint import Fingerprint, refuse_mismatched
from dragoman.training.replica import Replica
from dragoman.training.step_log import StepLog
from dragoman.training.train_step import TrainStep

MAX_ROLLBACKS = 3
ROLLBACK_FACTOR = 0.5
"""Factor on the learning rate after each rollback."""


class Membership:
    """This worker's part in forming a world, and in recovering from losses and from steps that are not finite."""

    def __init__(
        self,
        settings: Settings,
        fingerprint: Fingerprint,
        cluster: Cluster,
        replica: Replica,
        train_step: TrainStep,
        batches: BatchStream,
        checkpoints: Checkpoints,
        step_log: StepLog,
        timer: StepTimer,
        record: Callable[[Event], None],
        *,
        take_step: Callable[[], None],
        on_new_world: Callable[[Sequence[str]], None],
    ) -> None:
        """`take_step` computes the next batch, and updates the weights, without a synchronisation."""
        self._settings = settings
        self._fingerprint = fingerprint
        self._cluster = cluster
        self._replica = replica
        self._train_step = train_step
        self._batches = batches
        self._checkpoints = checkpoints
        self._step_log = step_log
        self._timer = timer
        self._record = record
        self._take_step = take_step
        self._on_new_world = on_new_world
        self.storage: list[int] = [0]
        """For each rank, the lowest rank that writes to the same file system."""
        self._checkpoint_writers: frozenset[int] = frozenset()
        self._rank = 0
        """Of this worker in the world of the present batches."""
        self._balancer = ShareBalancer([1.0])
        self._exchange = ExchangeSelection(settings.exchange, cluster, replica, timer, self._time_step, record)
        self._catch_up = CatchUp(cluster, replica, step_log, self._take_steps, record)
        cluster.on_stall = self._report_stall

    @property
    def writes_checkpoints(self) -> bool:
        return self._cluster.rank in self._checkpoint_writers

    @property
    def averages_gradients(self) -> bool:
        """True if several workers exchange gradients, not weights."""
        return self._cluster.world_size > 1 and self._exchange.choice.method.name != "local"

    def due_work(self) -> DueWork:
        """The work due after the present step."""
        return due_after(self._replica.state.step, self._settings, self._exchange.choice.review_every)

    def resume(self) -> bool:
        """Load the newest valid checkpoint of this machine, if there is one. Other workers may have a newer one."""
        found = self._checkpoints.newest_valid()
        if found is None:
            return False
        self._replica.restore(checkpoint.load(found))
        self._catch_up.restart(checkpoint.identity(found))
        return True

    def sync(self) -> None:
        """Before a step: join the present world, and synchronise its workers if it has changed."""
        self._timer.enter("exchange")
        self._report_rejections()
        # Between synchronisations the weights differ, and none could be sent to a joining worker: it waits.
        # After a loss it no longer does: there is no world to synchronise with.
        is_open = self._batches.is_open
        changed = (self._replica.exchange.in_sync or not is_open) and self._cluster.refresh()
        if changed or not is_open:
            self._form_world()

    def _form_world(self) -> None:
        """Bring all workers of a new world to the same state, and agree on shares, checkpoint writers and exchange."""
        self._step_log.flush()
        self._timer.enter("outside")
        cluster, shares = self._cluster, self._settings.training.shares
        if cluster.survives_losses:
            refuse_mismatched(cluster, self._fingerprint, self._replica.state.step)
        self._catch_up.run(self._catch_up.progress(self._balancer.shares))
        self._replica.state = self._replica.state.in_world(self._catch_up.history)
        self.storage = find_shared_storage(cluster, self._checkpoints.folder)
        self._checkpoint_writers = choose_checkpoint_writers(self.storage, cluster.members)
        if self.writes_checkpoints:
            self._checkpoints.start_writing()
        fixed = None if isinstance(shares, str) else [shares[member.worker] for member in cluster.members]
        adaptive = shares == "auto" and cluster.machines > 1
        self._balancer = ShareBalancer(fixed or [1.0] * cluster.world_size, adaptive=adaptive)
        self._open_batches()
        self._exchange.choose()
        self._on_new_world([describe_member(member) for member in cluster.members])

    def review_exchange(self) -> None:
        """Check whether the exchange method is still right for the link."""
        self._exchange.review()

    def _time_step(self) -> float:
        """Compute time of a step, from running the next batch after warm-up passes."""
        batch, state = next(self._batches), self._replica.state
        for _ in range(self._train_step.warm_up_passes + 1):
            started_at = time.perf_counter()
            self._train_step(batch, state.step + 1)
            if self._cluster.device.type == "cuda":
                torch.cuda.synchronize()
            compute_s = time.perf_counter() - started_at
            self._replica.model.zero_grad()
        self._open_batches()
        return compute_s

    def rebalance(self, stats: StepStats) -> None:
        """After a synchronisation: adapt the shares to the workers' speeds."""
        other_s = [max(0.0, ready - compute) for ready, compute in zip(stats.ready_s, stats.compute_s, strict=True)]
        if self._balancer.update(stats.compute_s, other_s):
            self._record(SharesChanged(step=self._replica.state.step, shares=list(self._balancer.shares)))
            self._open_batches()

    def _open_batches(self) -> None:
        self._rank = self._cluster.rank
        self._batches.open(self._replica.state.position, self._balancer.shares, self._rank)

    def _take_steps(self, last: int, shares: Sequence[float]) -> None:
        """Take this worker's shares of the steps up to `last` that others have taken in the world that was lost."""
        self._batches.open(self._replica.state.position, shares, self._rank)
        while self._replica.state.step < last:
            self._replica.update_average()  # After the step in which this worker has noticed the loss, as the others.
            self._take_step()
        self._batches.close()
        self._step_log.flush()
        self._timer.enter("outside")

    def recover(self, lost: WorkersLostError) -> None:
        """After a loss: an elastic world continues with the remaining workers, a static one must restart (raises).

        Local steps since the last synchronisation are kept, and merged in the next world.
        """
        step = self._replica.state.step
        workers = [describe_member(member, activity) for member, activity in lost.missing]
        if isinstance(lost, WorkersLateError):
            self._record(WorkersLate(step=step, workers=workers))
        else:
            self._record(WorkersLost(step=step, workers=workers, reason=lost.reason))
        self._cluster.leave_world(lost)
        self._replica.exchange.leave_world()
        self._replica.model.zero_grad()
        self._batches.close()

    def roll_back(self) -> bool:
        """Return to the newest checkpoint with a lower learning rate. False after `MAX_ROLLBACKS`."""
        self._step_log.flush()
        self._timer.enter("outside")
        state = self._replica.state
        if state.rollbacks >= MAX_ROLLBACKS:
            return False
        self._checkpoints.wait()
        found = self.resume()
        progress = ReplicaProgress(self._replica.state.step, True, self._catch_up.history)
        if not self._catch_up.run(progress if found else ReplicaProgress(-1, True, "")):
            raise DragomanError(
                f"The loss was not finite for {self._settings.training.max_skipped_steps} steps in a row, before the "
                f"first checkpoint. {divergence_remedy()}"
            )
        factor = state.learning_rate_factor * ROLLBACK_FACTOR
        state_after = self._replica.state.in_world(self._catch_up.history)
        self._replica.state = replace(state_after, learning_rate_factor=factor, rollbacks=state.rollbacks + 1)
        self._replica.step_complete, self._step_log.consecutive_skips = True, 0
        self._open_batches()
        self._record(RolledBack(from_step=state.step, to_step=self._replica.state.step, learning_rate_factor=factor))
        return True

    def report_failure(self, error: Exception) -> None:
        """Record why this worker ends. The others receive the reason with its last heartbeats."""
        self._record(WorkerFailed(step=self._replica.state.step, error=describe_error(error)))
        self._cluster.heartbeat.activity = f"failed: {describe_error(error)}"
        time.sleep(2 * HEARTBEAT_INTERVAL_S)

    def _report_rejections(self) -> None:
        if rejected := self._cluster.take_rejections():
            step, sources = self._replica.state.step, list(rejected.sources)
            self._record(MessagesRejected(step=step, count=rejected.count, sources=sources))

    def _report_stall(self, waited_for: Sequence[tuple[Member, str]]) -> None:
        workers = [describe_member(member, activity) for member, activity in waited_for]
        self._record(CollectiveStalled(step=self._replica.state.step, workers=workers))


def describe_error(error: Exception) -> str:
    """The error in one line: a sentence for users as it is, others with their kind."""
    first_line = str(error).partition("\n")[0]
    return first_line if isinstance(error, DragomanError) else f"{type(error).__name__}: {first_line}"


def describe_member(member: Member, activity: str = "") -> str:
    return f"{member} ({activity})" if activity else str(member)
