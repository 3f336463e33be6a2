"""Catching up: all workers of a new world get the same state, with the local steps of each.

A worker remembers the history of its state, and which others have local steps that are not in it. Those that have
noticed a loss earlier than others follow them first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import UnmergedSteps
from dragoman.distributed.state_sync import (
    Origin,
    ReplicaProgress,
    broadcast_state,
    compare_progress,
    find_late,
    merge_weights,
)
from dragoman.events import Event
from dragoman.late_worker_events import LateStepsMerged
from dragoman.training.replica import Replica
from dragoman.training.snapshot import Snapshot, TrainingState
from dragoman.training.step_log import StepLog

FRAGMENT = "fragment"
MAX_ABSENT = 64
"""Workers to remember that may still be merged: some of those that have left will never come back."""


class CatchUp:
    """This worker's part in bringing all workers of a world to the same state."""

    def __init__(
        self,
        cluster: Cluster,
        replica: Replica,
        step_log: StepLog,
        take_steps: Callable[[int, Sequence[float]], None],
        record: Callable[[Event], None],
    ) -> None:
        """`take_steps` takes local steps up to a step of the world that was lost, with the given shares."""
        self._cluster, self._replica, self._step_log, self._record = cluster, replica, step_log, record
        self._take_steps = take_steps
        self.history = ""
        """See `ReplicaProgress.history`."""
        self._members: list[str] = []
        """Names of the workers in the world of that history."""
        self._absent: Mapping[str, Origin] = {}
        """See `ReplicaProgress.absent`."""

    def restart(self, history: str) -> None:
        """The state was replaced by one with this history."""
        self.history, self._members, self._absent = history, [], {}

    def progress(self, shares: Sequence[float]) -> ReplicaProgress:
        """This worker's progress. Workers of its world that are not here have local steps as it has, and are absent."""
        state, unmerged = self._replica.state, self._replica.exchange.unmerged
        own = ReplicaProgress(state.step, self._replica.step_complete, self.history, unmerged, shares=shares)
        present = {member.name for member in self._cluster.members}
        # Right after a synchronisation there are none: this world takes over the next batches of those who have left.
        left = {name: own.origin for name in self._members if name not in present} if unmerged.steps else {}
        return replace(own, absent={**self._absent, **left})

    def run(self, own: ReplicaProgress) -> bool:
        """Give every worker the state of the one furthest ahead, if any differs. False if no worker has any state."""
        furthest, progress, history = compare_progress(self._cluster, own)
        if any(each.is_behind(progress[furthest]) for each in progress):
            self._follow(furthest, progress)
            furthest, progress, history = compare_progress(self._cluster, self.progress(own.shares))
        ahead, names = progress[furthest], [member.name for member in self._cluster.members]
        if ahead.step < 0:
            return False
        late = find_late(names, progress, ahead)
        weights = merge_weights(progress, ahead, late)
        if any(weights):  # Only the steps of lost workers are lost.
            self._replica.exchange.merge(weights[self._cluster.rank])
        progress = [each.merged_with(ahead) for each in progress]
        # As soon as its state changes: if a worker is lost meanwhile, those that have merged differ from the others.
        if progress[self._cluster.rank] == progress[furthest]:
            self._enter_history(history, ahead)
        self._broadcast_state(furthest, progress)
        self._enter_history(history, ahead)
        if late:
            self._report_late_steps({rank: progress[rank].unmerged for rank in late})
        return True

    def _follow(self, furthest: int, progress: Sequence[ReplicaProgress]) -> None:
        """Before a merge: those that are behind finish the same fragments and take the same steps as the one ahead.

        Workers notice a loss when they wait for a fragment. A fragment that some wait for in vain may be finished by
        others, which then compute until they wait for the next one. So those behind lack one fragment, and as many
        steps as a fragment takes, at most.
        """
        ahead, own, exchange = progress[furthest], progress[self._cluster.rank], self._replica.exchange
        behind = [each for each in progress if each.is_behind(ahead)]
        if any(each.unmerged.fragments < ahead.unmerged.fragments for each in behind):
            sent = {FRAGMENT: exchange.finished_fragment()} if self._cluster.rank == furthest else None
            _, received = broadcast_state(self._cluster, furthest, tensors=sent)
            if own.is_behind(ahead) and own.unmerged.fragments < ahead.unmerged.fragments:
                exchange.finish_fragment(received[FRAGMENT])
        if own.is_behind(ahead):
            self._take_steps(ahead.step, ahead.shares)

    def _enter_history(self, history: str, ahead: ReplicaProgress) -> None:
        """This worker has the state of the one ahead, with the local steps of all that are here."""
        self.history, self._members = history, [member.name for member in self._cluster.members]
        absent = [(name, origin) for name, origin in ahead.absent.items() if name not in self._members]
        self._absent = dict(absent[-MAX_ABSENT:])

    def _broadcast_state(self, furthest: int, progress: Sequence[ReplicaProgress]) -> None:
        """Send the state of the worker that is furthest ahead to all, if any differs."""
        ahead = progress[furthest]
        if all(each == ahead for each in progress):
            return
        if self._cluster.rank == furthest:
            snapshot = self._replica.snapshot()
            broadcast_state(self._cluster, furthest, asdict(snapshot.state), snapshot.files())
        else:
            state, tensors = broadcast_state(self._cluster, furthest)
            received = Snapshot.from_files(TrainingState.from_json(state), tensors)
            self._replica.restore(received, step_complete=ahead.step_complete)
            self._step_log.consecutive_skips = 0

    def _report_late_steps(self, merged: Mapping[int, UnmergedSteps]) -> None:
        """Record the local steps of late workers, by rank."""
        self._record(
            LateStepsMerged(
                step=self._replica.state.step,
                workers=[str(self._cluster.members[rank]) for rank in merged],
                steps=[each.steps for each in merged.values()],
                target_tokens=[each.target_tokens for each in merged.values()],
                weights=[each.weight for each in merged.values()],
            )
        )
