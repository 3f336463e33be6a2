from collections import Counter
from dataclasses import replace

from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.shared_storage import find_shared_storage
from dragoman.events import EvaluationDone, Event, HostSampled, MicroBatchesSplit, StepDone
from dragoman.run_folder import RunFolder

from ..insight.synthetic_runs import evaluation, host_sample, synthetic_run
from .thread_workers import ThreadCluster, ThreadWorkers

STEPS = [event for event in synthetic_run(5) if isinstance(event, StepDone)]


def split_event(rank: int, step: int) -> MicroBatchesSplit:
    return MicroBatchesSplit(worker=rank, step=step, micro_batches=2, reason="memory")


def sync_events(workers: ThreadWorkers, folder_of, *rounds) -> None:
    """Every worker adds the events of each round, and then syncs."""
    event_syncs = {cluster.rank: EventSync(RunFolder(folder_of(cluster))) for cluster in workers.clusters}

    def work(cluster: ThreadCluster) -> None:
        storage = find_shared_storage(cluster, folder_of(cluster))
        for events in rounds:
            for event in events(cluster.rank):
                event_syncs[cluster.rank].add(event)
            event_syncs[cluster.rank].sync(cluster, storage)

    workers(work)


def kinds(folder, worker: int) -> Counter[type[Event]]:
    return Counter(type(event) for event in RunFolder(folder).events(worker))


def test_every_machine_gets_the_events_of_the_others(tmp_path):
    with ThreadWorkers("a", "a", "b", "c") as workers:
        sync_events(
            workers,
            lambda cluster: tmp_path / cluster.host,
            lambda rank: [split_event(rank, 1)],
            lambda rank: [split_event(rank, 2)],
        )
    for host, others in {"a": {2, 3}, "b": {0, 1, 3}, "c": {0, 1, 2}}.items():
        for worker in range(4):
            events = RunFolder(tmp_path / host).events(worker)
            expected = [split_event(worker, 1).step, split_event(worker, 2).step] if worker in others else []
            assert [event.step for event in events] == expected, "its own workers' logs are there already"
            assert all(event.worker == worker for event in events)


def test_of_steps_only_the_last_is_sent(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        sync_events(
            workers,
            lambda cluster: tmp_path / cluster.host,
            lambda rank: [
                replace(event, worker=rank) for event in (*STEPS, evaluation(5, 1.0, 1.0, 1.0), host_sample("b", 1))
            ],
        )
    assert kinds(tmp_path / "a", 1) == {StepDone: 1, HostSampled: 1, EvaluationDone: 1}
    (step,) = [event for event in RunFolder(tmp_path / "a").events(1) if isinstance(event, StepDone)]
    assert step == replace(STEPS[-1], worker=1)


def test_machines_with_shared_storage_send_nothing(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        sync_events(workers, lambda cluster: tmp_path, lambda rank: [split_event(rank, 1)])
        assert not list(tmp_path.glob("events-*"))


def test_a_sync_is_due_after_an_interval(tmp_path, monkeypatch):
    event_sync = EventSync(RunFolder(tmp_path))
    assert not event_sync.due
    monkeypatch.setattr("dragoman.distributed.event_sync.EVERY_S", -1.0)
    assert event_sync.due
