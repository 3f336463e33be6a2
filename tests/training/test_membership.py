from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dragoman.batching.data_loader import BatchStream, DataLoader, WorkerBatch
from dragoman.corpus.dataset import DataSet
from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.flat_tensors import flatten
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.synchronous import sum_changes
from dragoman.distributed.process_group import WorkersLateError, WorkersLostError
from dragoman.distributed.step_stats import StepStats
from dragoman.errors import DragomanError
from dragoman.events import (
    CheckpointRejected,
    CollectiveStalled,
    Event,
    ExchangeChosen,
    RolledBack,
    RunEnded,
    RunStarted,
    SharesChanged,
    StepDone,
    WorkersLost,
)
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription
from dragoman.model.precision import Precision
from dragoman.settings import Settings
from dragoman.step_model import PLAIN, ExchangeChoice
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training.checkpoint import Checkpoints
from dragoman.training.fingerprint import Fingerprint
from dragoman.training.membership import MAX_ROLLBACKS, Membership
from dragoman.training.replica import build_replica
from dragoman.training.step_log import StepLog
from dragoman.training.train_step import TrainStep

from ..distributed.fake_cluster import FakeCluster
from ..distributed.thread_workers import ThreadCluster, ThreadWorkers, short_timeout
from ..small import tiny
from .recorded_run import RecordedRun, inject_nan_losses


class Member:
    """One worker's membership, with everything it coordinates."""

    def __init__(self, cluster: Cluster, settings: Settings, data: DataSet, folder: Path) -> None:
        self.events: list[Event] = []
        self.worlds: list[list[str]] = []
        architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
        self.replica = build_replica(settings, architecture, cluster)
        loader = DataLoader(data.pairs("train"), data.tokenizer, settings.batch.tokens, 1, settings.batch.tokens)
        self.batches = BatchStream(loader)
        record = self.events.append
        description = ModelDescription(architecture, data.languages, settings.decoding, data.tokenizer)
        timer = StepTimer()
        self.membership = Membership(
            settings,
            Fingerprint.of(settings, data),
            cluster,
            self.replica,
            TrainStep(
                self.replica.model,
                loader,
                Precision.choose(settings, cluster.device),
                settings.training,
                cluster.device,
                record,
            ),
            self.batches,
            Checkpoints(folder / "checkpoints", description, settings.checkpoint, record),
            StepLog(cluster, timer.take, record),
            timer,
            record,
            take_step=self.take_step,
            on_new_world=lambda workers: self.worlds.append(list(workers)),
        )
        self.taken: list[WorkerBatch] = []
        """Batches of the steps that this worker took to follow others."""

    def take_step(self) -> None:
        batch, exchange = next(self.batches), self.replica.exchange
        exchange.all_reduce(
            StepStats(torch.zeros(2), batch.worker_target_tokens, [0.0, 0.0], [0.0, 0.0]), batch.target_tokens
        )
        self.replica.state = replace(self.replica.state, step=self.replica.state.step + 1, position=batch.next_position)
        self.taken.append(batch)

    def set_step(self, step: int) -> None:
        """Pretend that this worker has trained up to a step."""
        self.replica.state = replace(self.replica.state, step=step)
        with torch.no_grad():
            for parameter in self.replica.model.parameters():
                parameter.fill_(float(step))

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def run_members(
    data: DataSet,
    folder: Path,
    work: Callable[[Cluster, Member], object],
    *hosts: str,
    settings: Settings | None = None,
) -> list[Member]:
    """Call `work` on every worker of a world with one worker for each host."""

    def run(cluster: Cluster) -> Member:
        member = Member(cluster, settings or tiny(), data, folder / cluster.host)
        try:
            work(cluster, member)
        finally:
            member.batches.close()
        return member

    with ThreadWorkers(*hosts) as workers:
        return workers(run)


@pytest.fixture
def elastic_member(data, tmp_path):
    cluster = FakeCluster(elastic=True)
    member = Member(cluster, tiny("exchange.method=local"), data, tmp_path)
    yield member
    member.batches.close()
    cluster.close()


LOST = WorkersLostError([], "no heartbeat")


def test_workers_that_are_behind_get_the_state_of_the_one_furthest_ahead(data, tmp_path):
    def work(cluster: Cluster, member: Member) -> None:
        member.set_step([3, 7, 0][cluster.rank])
        member.membership.sync()

    for member in run_members(data, tmp_path, work, "a", "b", "c"):
        assert member.replica.state.step == 7
        assert all(bool((parameter == 7).all()) for parameter in member.replica.model.parameters())


def test_every_world_has_a_name_that_its_workers_share(data, tmp_path):
    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()

    first, second = (run_members(data, tmp_path, work, *hosts) for hosts in (("a", "b"), ("a", "b", "c")))
    names = [{member.replica.state.worlds for member in members} for members in (first, second)]
    assert all(len(shared) == 1 for shared in names)
    assert names[0] != names[1]


def test_a_new_world_is_announced_once(data, tmp_path):
    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()
        member.membership.sync()

    for member in run_members(data, tmp_path, work, "a", "b"):
        assert member.worlds == [["worker 0 on a", "worker 1 on b"]]


def test_two_machines_write_checkpoints(data, tmp_path):
    writers = {}

    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()
        writers[cluster.rank] = member.membership.writes_checkpoints

    run_members(data, tmp_path, work, "a", "a", "b", "c")
    assert writers == {0: True, 1: False, 2: True, 3: False}


def test_fixed_shares_belong_to_workers(data, tmp_path):
    tokens = {}

    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()
        tokens[cluster.rank] = next(member.batches).worker_target_tokens

    run_members(data, tmp_path, work, "a", "b", settings=tiny("training.shares=[3,1]"))
    assert tokens[0] > 2 * tokens[1]


def test_shares_follow_the_speeds_of_machines(data, tmp_path):
    batches = {}

    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()
        for _ in range(20):
            member.membership.rebalance(StepStats(torch.zeros(2), 1, [3.0, 1.0], [3.0, 1.0]))
        batches[cluster.rank] = next(member.batches)

    settings = tiny("exchange.method=plain")
    for member in run_members(data, tmp_path, work, "slow", "fast", settings=settings):
        assert member.of(SharesChanged)[0].shares == pytest.approx([0.25, 0.75])
    assert batches[0].worker_target_tokens < batches[1].worker_target_tokens


def test_a_chosen_exchange_is_recorded(data, tmp_path):
    settings = tiny("exchange.method=bf16")
    members = run_members(data, tmp_path, lambda _, member: member.membership.sync(), "a", "b", settings=settings)
    assert [event.method for member in members for event in member.of(ExchangeChosen)] == ["bf16", "bf16"]


def test_after_a_loss_local_steps_are_kept(elastic_member):
    elastic_member.membership.sync()
    elastic_member.set_step(9)
    elastic_member.membership.recover(LOST)
    assert elastic_member.replica.state.step == 9
    assert not elastic_member.batches.is_open
    assert elastic_member.of(WorkersLost)[0].reason == "no heartbeat"


LOCAL = ("exchange.method=local", "exchange.every=100")


def take_local_steps(member: Member, step: int, change: float, tokens: int, batch_tokens: int = 1000) -> None:
    """Local updates up to a step, whose synchronisation then fails because a worker is lost or late."""
    zeros = [0.0] * 3
    while member.replica.state.step + member.replica.exchange.unmerged.steps < step:
        member.replica.exchange.all_reduce(StepStats(torch.zeros(2), tokens, zeros, zeros), batch_tokens)
    with torch.no_grad():
        for parameter in member.replica.model.parameters():
            parameter.add_(change)
    member.replica.state = replace(member.replica.state, step=step)
    member.replica.step_complete = False
    member.batches.close()


def test_after_a_loss_local_steps_of_the_others_are_merged_by_their_tokens(data, tmp_path):
    members = {}

    def work(cluster: Cluster, member: Member) -> None:
        member.set_step(3)
        member.membership.sync()
        if cluster.rank == 2:  # Lost, and started again.
            member.batches.close()
            member = Member(cluster, tiny(*LOCAL), data, tmp_path / "again")
        else:
            take_local_steps(member, 5, *((1.0, 100), (3.0, 300))[cluster.rank])
        member.membership.sync()
        members[cluster.rank] = member
        member.batches.close()

    run_members(data, tmp_path, work, "a", "b", "c", settings=tiny(*LOCAL))
    for member in members.values():
        assert (member.replica.state.step, member.replica.step_complete) == (5, False)
        assert member.replica.exchange.in_sync
        assert all(bool((parameter == 3 + 2.5).all()) for parameter in member.replica.model.parameters())


def run_late_worker(
    data: DataSet,
    folder: Path,
    *,
    comes_back_early: bool = False,
    meet: Callable[[Member], None] = lambda member: member.membership.sync(),
) -> list[Member]:
    """Workers 0 and 1 continue without worker 2 after step 5, and meet it again."""

    def work(cluster: ThreadCluster, member: Member) -> None:
        member.set_step(3)
        member.membership.sync()
        take_local_steps(member, 5, (1.0, 3.0, 4.0)[cluster.worker], (100, 300, 100)[cluster.worker], 800)
        if cluster.worker < 2:
            workers.form_world(cluster, "without the late worker", [0, 1])
            member.membership.sync()
            if not comes_back_early:
                member.replica.state = replace(member.replica.state, step=7)
            member.batches.close()
        workers.form_world(cluster, "with the late worker", [0, 1, 2])
        meet(member)
        member.batches.close()
        workers.form_world(cluster, "once more", [0, 1, 2])
        member.membership.sync()

    def run(cluster: ThreadCluster) -> Member:
        member = Member(cluster, tiny(*LOCAL), data, folder / cluster.host)
        work(cluster, member)
        member.batches.close()
        return member

    with short_timeout(), ThreadWorkers("a", "b", "c") as workers:
        return workers(run)


@pytest.mark.parametrize("comes_back_early", [False, True])
def test_the_steps_of_a_late_worker_are_added_once_by_its_part_of_the_tokens(data, tmp_path, comes_back_early):
    for member in run_late_worker(data, tmp_path, comes_back_early=comes_back_early):
        assert member.replica.state.step == (5 if comes_back_early else 7)
        assert member.replica.exchange.in_sync
        # (1 * 100 + 3 * 300) / 400 of those in time, and 4 * 100 / 800 of the late one.
        assert all(bool((parameter == 3 + 2.5 + 0.5).all()) for parameter in member.replica.model.parameters())
        (merged,) = member.of(LateStepsMerged)
        assert (merged.workers, merged.steps, merged.target_tokens, merged.weights) == (
            ["worker 2 on c"], [2], [200], [0.125],
        )  # fmt: skip


@pytest.mark.parametrize("merging", ["a", "b"])
def test_late_steps_are_added_once_if_only_one_worker_has_merged_them_before_a_loss(data, tmp_path, merging):
    def lose_connection(*_: object) -> None:
        raise WorkersLostError([], "connection closed")

    def meet(member: Member) -> None:
        """Take part in the merge. All but one worker do not receive its result."""
        exchange, catch_up = member.replica.exchange, member.membership._catch_up
        assert isinstance(exchange, LocalSteps)

        def merge_in_vain(weight: float) -> None:
            sum_changes(exchange._cluster, weight * (flatten(exchange._parameters) - exchange._anchor))
            lose_connection()

        if exchange._cluster.host != merging:
            exchange.merge = merge_in_vain
        catch_up._broadcast_state = lose_connection
        with pytest.raises(WorkersLostError):
            member.membership.sync()
        vars(exchange).pop("merge", None)
        del catch_up._broadcast_state

    for member in run_late_worker(data, tmp_path, meet=meet):
        assert all(bool((parameter == 3 + 2.5 + 0.5).all()) for parameter in member.replica.model.parameters())


def test_a_late_worker_is_recorded_as_late_and_not_as_lost(elastic_member):
    elastic_member.membership.recover(WorkersLateError([]))
    assert elastic_member.of(WorkersLate)
    assert not elastic_member.of(WorkersLost)


def test_a_worker_that_completed_the_synchronisation_is_ahead_of_those_that_did_not(data, tmp_path):
    def work(cluster: Cluster, member: Member) -> None:
        member.membership.sync()
        if cluster.rank == 1:
            member.set_step(5)
            member.replica.step_complete = False
            member.batches.close()
        else:
            take_local_steps(member, 5, 1.0, 100)
        member.membership.sync()

    for member in run_members(data, tmp_path, work, "a", "b", "c", settings=tiny(*LOCAL)):
        assert all(bool((parameter == 5).all()) for parameter in member.replica.model.parameters())


def test_a_change_that_is_not_finite_is_not_merged_by_a_worker_of_another_history(data, tmp_path):
    def work(cluster: Cluster, member: Member) -> None:
        member.set_step(3)
        member.membership.sync()
        take_local_steps(member, 5 - cluster.rank, float("nan") if cluster.rank else 1.0, 100)
        if cluster.rank:
            member.membership._catch_up.restart("another history")
        member.membership.sync()

    for member in run_members(data, tmp_path, work, "a", "b", settings=tiny(*LOCAL)):
        assert all(bool(parameter.isfinite().all()) for parameter in member.replica.model.parameters())


def test_a_step_whose_evaluation_was_cut_off_is_still_to_be_evaluated_after_the_recovery(elastic_member):
    elastic_member.replica.step_complete = False
    elastic_member.membership.sync()
    elastic_member.membership.recover(LOST)
    assert not elastic_member.replica.step_complete


def test_a_review_keeps_the_exchange_and_what_rounding_lost_unless_another_is_better(elastic_member, monkeypatch):
    membership, replica = elastic_member.membership, elastic_member.replica
    membership.sync()
    in_use = replica.exchange
    membership.review_exchange()
    assert replica.exchange is in_use
    monkeypatch.setattr(choose_exchange, "decide", lambda *_: ExchangeChoice(PLAIN))
    membership.review_exchange()
    assert replica.exchange is not in_use


def test_a_static_world_does_not_recover_from_a_loss(data, tmp_path):
    cluster = FakeCluster()
    member = Member(cluster, tiny(), data, tmp_path)
    with pytest.raises(WorkersLostError):
        member.membership.recover(LOST)
    assert member.of(WorkersLost)
    cluster.close()


def test_a_stalled_collective_is_recorded_with_the_activity_of_workers(data, tmp_path):
    cluster = FakeCluster()
    member = Member(cluster, tiny(), data, tmp_path)
    cluster.on_stall([(cluster.members[0], "step 4, computing")])
    assert member.of(CollectiveStalled)[0].workers == [f"worker 0 on {cluster.host} (step 4, computing)"]
    cluster.close()


def test_a_damaged_checkpoint_is_rejected_and_the_previous_one_is_resumed(data, tmp_path):
    RecordedRun(tiny("training.steps=8"), data, tmp_path).train()
    weights = tmp_path / "checkpoints" / "step-00000008" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    run = RecordedRun(tiny(), data, tmp_path)
    run.train()
    assert run.of(CheckpointRejected)[0].name == "step-00000008"
    assert run.of(RunStarted)[0].resumed_step == 5


def test_consecutive_skips_roll_back_with_a_lower_learning_rate(data, tmp_path, monkeypatch):
    run = RecordedRun(tiny("training.max_skipped_steps=3"), data, tmp_path)
    inject_nan_losses(monkeypatch, range(6, 9), run)
    assert run.train() == "finished"
    (rollback,) = run.of(RolledBack)
    assert (rollback.from_step, rollback.to_step, rollback.learning_rate_factor) == (8, 5, 0.5)
    learning_rates = {event.step: event.learning_rate for event in run.of(StepDone)}
    assert learning_rates[6] == pytest.approx(learning_rates[5] / 2)


def test_a_run_that_keeps_diverging_ends_after_the_last_rollback(data, tmp_path, monkeypatch):
    run = RecordedRun(tiny("training.max_skipped_steps=2"), data, tmp_path)
    inject_nan_losses(monkeypatch, range(6, 1000), run)
    assert run.train() == "diverged"
    assert len(run.of(RolledBack)) == MAX_ROLLBACKS
    assert run.of(RunEnded)[0].reason == "diverged"


def test_divergence_before_the_first_checkpoint_is_an_error_with_a_remedy(data, tmp_path, monkeypatch):
    run = RecordedRun(tiny("training.max_skipped_steps=2"), data, tmp_path)
    inject_nan_losses(monkeypatch, range(1, 1000), run)
    with pytest.raises(DragomanError, match=r"Lower schedule\.learning_rate.*\(with --from, lower fine_tuning"):
        run.train()
