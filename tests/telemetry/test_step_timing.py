import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import CheckpointSaved, EvaluationDone, Event, RunEnded, StepDone
from dragoman.run_folder import RunFolder
from dragoman.telemetry.step_timing import PARTS, StepTimer, split_step
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..distributed.thread_workers import ThreadWorkers
from ..small import tiny
from ..training.recorded_run import FakeScorer, RecordedRun

spans = st.floats(0, 100)


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from(PARTS), spans)))
def test_every_second_counts_in_exactly_one_part(entries):
    clock = ManualClock()
    timer = StepTimer(clock)
    for part, spent_s in entries:
        timer.enter(part)
        clock.now += spent_s
    taken = timer.take()
    for part in PARTS:
        assert taken[part] == pytest.approx(sum(spent_s for each, spent_s in entries if each == part))
    assert sum(timer.take().values()) == 0


@given(spans, spans, spans, spans)
def test_parts_of_a_step_sum_to_its_wall_time(data_s, compute_s, communication_s, optimizer_s):
    spent = {"data": data_s, "compute": compute_s, "exchange": communication_s, "update": optimizer_s, "outside": 7.0}
    parts = split_step(spent, compute_s, straggler_s=0.0)
    total_s = parts.data_s + compute_s + parts.communication_s + parts.straggler_s + parts.optimizer_s
    assert total_s == pytest.approx(parts.step_s, abs=1e-9)
    assert parts.step_s == pytest.approx(data_s + compute_s + communication_s + optimizer_s), (
        "time outside of steps does not count"
    )


def test_asynchronous_computing_does_not_count_as_communication():
    spent = {"data": 0.0, "compute": 0.1, "exchange": 1.2, "update": 0.1, "outside": 0.0}
    parts = split_step(spent, compute_s=1.0, straggler_s=0.0)
    assert parts.communication_s == pytest.approx(0.4)
    assert parts.optimizer_s == pytest.approx(0.0)


@given(st.lists(spans, min_size=2, max_size=5), spans)
def test_straggler_wait_is_separate_from_communication(ready_s, communication_s):
    spent = {"data": 0.0, "compute": 1.0, "exchange": communication_s, "update": 0.0, "outside": 0.0}
    split_times = [split_step(spent, 1.0, max(ready_s) - ready) for ready in ready_s]
    assert split_times[ready_s.index(max(ready_s))].straggler_s == 0, "the slowest waits for no one"
    assert all(parts.straggler_s + parts.communication_s == pytest.approx(communication_s) for parts in split_times)
    assert all(min(parts.straggler_s, parts.communication_s) >= 0 for parts in split_times)


def test_the_time_until_ready_counts_everything_since_the_last_exchange():
    clock = ManualClock()
    timer = StepTimer(clock)
    for part, spent_s in (("compute", 1.0), ("exchange", 5.0), ("update", 0.25), ("exchange", 2.0), ("outside", 3.0)):
        timer.enter(part)
        clock.now += spent_s
    timer.enter("compute")
    assert timer.ready_s(compute_s=1.5) == pytest.approx(0.25 + 3.0 + 1.5)


def test_a_real_run_accounts_for_its_time(data, tmp_path):
    recording = RecordedRun(tiny("training.steps=40", "evaluation.every=20"), data, tmp_path)
    recording.train()
    steps = recording.of(StepDone)
    total_s = sum(step.step_s for step in steps)
    parts_s = sum(
        step.data_s + step.compute_s + step.communication_s + step.straggler_s + step.optimizer_s for step in steps
    )
    assert parts_s == pytest.approx(total_s, rel=0.02)
    outside_s = sum(done.evaluation_s for done in recording.of(EvaluationDone))
    outside_s += sum(saved.stall_s for saved in recording.of(CheckpointSaved))
    assert total_s + outside_s <= recording.of(RunEnded)[0].elapsed_s


@pytest.mark.parametrize("method", ["plain", "local"])
def test_the_other_worker_measures_the_wait_for_a_straggler(data, tmp_path, method):
    settings = tiny("training.steps=8", "evaluation.every=8", f"exchange.method={method}", "exchange.every=4")

    def work(cluster: Cluster) -> list[StepDone]:
        steps = []

        def record(event: Event) -> None:
            if isinstance(event, StepDone):
                steps.append(event)
                time.sleep(0.2 * cluster.worker)

        folder = RunFolder(tmp_path / str(cluster.worker))
        Trainer(settings, data, folder, cluster, FakeScorer(), record, EventSync(folder)).train(StopSignal())
        return steps

    with ThreadWorkers("quick", "slow") as workers:
        quick, slow = workers(work)
    assert [step.ready_s for step in quick] == [step.ready_s for step in slow], "both know the times of both"
    exchanges = [step.ready_s for step in quick if step.ready_s]
    assert sum(late - early for early, late in exchanges) > 0.1 * len(exchanges)
    assert sum(step.straggler_s for step in quick) > sum(step.straggler_s for step in slow)
