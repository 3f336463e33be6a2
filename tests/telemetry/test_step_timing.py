import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import CheckpointSaved, EvaluationDone, Event, RunEnded, StepDone
from dragoman.run_folder import RunFolder
from dragoman.telemetry.step_timing import PARTS, StepTimer, split
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..distributed.thread_workers import ThreadWorkers
from ..training.conftest import Parrot, Recording, tiny

spans = st.floats(0, 100)


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.sampled_from(PARTS), spans)))
def test_every_second_counts_in_exactly_one_part(visits):
    clock = Hands()
    anatomy = StepTimer(clock)
    for part, spent_s in visits:
        anatomy.enter(part)
        clock.now += spent_s
    taken = anatomy.take()
    for part in PARTS:
        assert taken[part] == pytest.approx(sum(spent_s for each, spent_s in visits if each == part))
    assert sum(anatomy.take().values()) == 0


@given(spans, spans, spans, spans)
def test_parts_of_a_step_sum_to_its_wall_time(data_s, compute_s, communication_s, optimizer_s):
    spent = {"data": data_s, "compute": compute_s, "exchange": communication_s, "update": optimizer_s, "apart": 7.0}
    parts = split(spent, compute_s, 0.0)
    whole_s = parts.data_s + compute_s + parts.communication_s + parts.optimizer_s
    assert whole_s == pytest.approx(parts.step_s, abs=1e-9)
    assert parts.step_s == pytest.approx(data_s + compute_s + communication_s + optimizer_s), (
        "what stands apart does not count"
    )


def test_a_device_that_computes_behind_python_does_not_look_like_a_slow_network():
    spent = {"data": 0.0, "compute": 0.1, "exchange": 1.2, "update": 0.1, "apart": 0.0}
    parts = split(spent, compute_s=1.0, straggler_s=0.0)
    assert parts.communication_s == pytest.approx(0.4)
    assert parts.optimizer_s == pytest.approx(0.0)


@given(st.lists(spans, min_size=2, max_size=5), spans)
def test_waiting_for_slower_workers_is_told_from_the_network(ready_s, communication_s):
    spent = {"data": 0.0, "compute": 1.0, "exchange": communication_s, "update": 0.0, "apart": 0.0}
    splits = [split(spent, 1.0, max(ready_s) - ready) for ready in ready_s]
    assert splits[ready_s.index(max(ready_s))].straggler_s == 0
    assert all(0 <= parts.straggler_s <= parts.communication_s for parts in splits)


def test_a_worker_is_ready_after_all_that_it_did_since_the_last_exchange():
    clock = Hands()
    anatomy = StepTimer(clock)
    for part, spent_s in (("compute", 1.0), ("exchange", 5.0), ("update", 0.25), ("exchange", 2.0), ("apart", 3.0)):
        anatomy.enter(part)
        clock.now += spent_s
    anatomy.enter("compute")
    assert anatomy.ready_s(compute_s=1.5) == pytest.approx(0.25 + 3.0 + 1.5)


def test_a_real_run_accounts_for_its_time(data, tmp_path):
    recording = Recording(tiny("training.steps=40", "evaluation.every=20"), data, tmp_path)
    recording.train()
    steps = recording.of(StepDone)
    whole_s = sum(step.step_s for step in steps)
    parts_s = sum(step.data_s + step.compute_s + step.communication_s + step.optimizer_s for step in steps)
    assert parts_s == pytest.approx(whole_s, rel=0.02)
    apart_s = sum(done.evaluation_s for done in recording.of(EvaluationDone))
    apart_s += sum(saved.stall_s for saved in recording.of(CheckpointSaved))
    assert whole_s + apart_s <= recording.of(RunEnded)[0].elapsed_s


@pytest.mark.parametrize("method", ["plain", "local"])
def test_a_slow_worker_is_seen_by_the_one_who_waits(data, tmp_path, method):
    settings = tiny("training.steps=8", "evaluation.every=8", f"exchange.method={method}", "exchange.every=4")

    def work(cluster: Cluster) -> list[StepDone]:
        seen = []

        def record(event: Event) -> None:
            if isinstance(event, StepDone):
                seen.append(event)
                time.sleep(0.2 * cluster.worker)

        folder = RunFolder(tmp_path / str(cluster.worker))
        Trainer(settings, data, folder, cluster, Parrot(), record, EventSync(folder)).train(StopSignal())
        return seen

    with ThreadWorkers("quick", "slow") as crew:
        quick, slow = crew(work)
    assert [step.ready_s for step in quick] == [step.ready_s for step in slow], "both know of both"
    met = [step.ready_s for step in quick if step.ready_s]
    assert sum(late - early for early, late in met) > 0.1 * len(met)
    assert sum(step.straggler_s for step in quick) > sum(step.straggler_s for step in slow)
