import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import CheckpointSaved, EvaluationDone, Event, RunEnded, RunStarted, StepDone
from dragoman.run_folder import RunFolder
from dragoman.telemetry.device_timeline import DeviceTimeline
from dragoman.telemetry.step_parts import PARTS
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training import trainer
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..distributed.thread_workers import ThreadWorkers
from ..small import tiny
from ..training.recorded_run import FakeScorer, RecordedRun
from .fake_gpu import ClockEvent

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
        assert taken.host_s[part] == pytest.approx(sum(spent_s for each, spent_s in entries if each == part))
    assert timer.take().elapsed_s == 0


@given(st.lists(st.tuples(st.sampled_from(PARTS), spans, st.booleans())))
def test_communication_beside_other_parts_is_overlapped(entries):
    clock, communication = ManualClock(), ManualClock()
    timer = StepTimer(clock, communication_s=communication)
    for part, spent_s, communicates in entries:
        timer.enter(part)
        clock.now += spent_s
        communication.now += spent_s * communicates
    beside = [
        spent_s for part, spent_s, communicates in entries if communicates and part not in ("exchange", "outside")
    ]
    assert timer.take().overlapped_s == pytest.approx(sum(beside))
    assert timer.take().overlapped_s == 0


def test_a_cpu_is_never_idle_because_python_is_late():
    clock = ManualClock()
    timer = StepTimer(clock)
    for part, spent_s in (("update", 2.0), ("host", 1.0), ("exchange", 4.0)):
        timer.enter(part)
        clock.now += spent_s
    spans = timer.take()
    several, alone = spans.read(alone=False), spans.read(alone=True)
    assert (several["update"], several["exchange"], several["host"]) == (3, 4, 0)
    assert (alone["update"], alone["exchange"], alone["host"]) == (7, 0, 0), "alone, a worker does not communicate"


def test_the_time_until_ready_counts_everything_since_the_last_exchange():
    clock = ManualClock()
    timer = StepTimer(clock)
    for part, spent_s in (("compute", 1.0), ("exchange", 5.0), ("update", 0.25), ("exchange", 2.0), ("outside", 3.0)):
        timer.enter(part)
        clock.now += spent_s
    timer.take()
    timer.enter("compute")
    clock.now += 1.5
    timer.enter("exchange")
    assert timer.compute_s == 1.5
    assert timer.ready_s == pytest.approx(0.25 + 3.0 + 1.5)
    timer.take()
    assert timer.compute_s == 1.5, "the time of the last step stays known"


def test_compiling_interrupts_a_part():
    clock = ManualClock()
    timer = StepTimer(clock)
    timer.enter("compute")
    clock.now += 1.0
    with timer.compiling(), timer.compiling():
        clock.now += 20.0
    clock.now += 2.0
    spent = timer.take().read(alone=False)
    assert (spent["compute"], spent["compile"]) == (3, 20)


def test_compiling_for_an_evaluation_belongs_to_no_step():
    clock = ManualClock()
    timer = StepTimer(clock)
    timer.enter("outside")
    with timer.compiling():
        clock.now += 20.0
    assert timer.take().read(alone=False)["outside"] == 20


def test_a_real_run_accounts_for_its_time(data, tmp_path):
    recording = RecordedRun(tiny("training.steps=40", "evaluation.every=20"), data, tmp_path)
    recording.train()
    steps = recording.of(StepDone)
    total_s = sum(step.step_s for step in steps)
    parts_s = sum(
        step.data_s + step.compute_s + step.communication_s + step.straggler_s + step.optimizer_s for step in steps
    )
    assert all(step.host_s == step.communication_s == 0 for step in steps), "one worker, on a CPU"
    assert parts_s == pytest.approx(total_s, rel=0.02)
    outside_s = sum(done.evaluation_s for done in recording.of(EvaluationDone))
    outside_s += sum(saved.stall_s for saved in recording.of(CheckpointSaved))
    assert total_s + outside_s <= recording.of(RunEnded)[0].elapsed_s


def test_a_run_that_is_timed_as_on_a_gpu_accounts_for_its_time(data, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "timeline_of", lambda _: DeviceTimeline(ClockEvent))
    settings = tiny("training.steps=40", "evaluation.every=20", "checkpoint.every=20", "optimizer.ema_decay=0.9")
    recording = RecordedRun(settings, data, tmp_path)
    recording.train()
    steps, evaluations = recording.of(StepDone), recording.of(EvaluationDone)
    assert [step.step for step in steps] == list(range(1, 41)), "steps that are recorded late are all recorded"
    for step in steps:
        parts_s = step.data_s + step.compute_s + step.compile_s + step.optimizer_s + step.host_s
        assert parts_s == pytest.approx(step.step_s, abs=1e-9)
        assert min(step.data_s, step.compute_s, step.optimizer_s, step.host_s) > 0
    steps_s = sum(step.step_s for step in steps)
    outside_s = sum(done.evaluation_s for done in evaluations)
    outside_s += sum(saved.stall_s for saved in recording.of(CheckpointSaved) if saved.step < 40)
    wall_s = evaluations[-1].at_s - recording.of(RunStarted)[0].at_s
    assert 0.5 * wall_s < steps_s + outside_s <= wall_s, "no time counts twice, and little in no part"


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
