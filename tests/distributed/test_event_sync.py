from collections import Counter
from dataclasses import replace

from dragoman import event_log, log_thinning
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.shared_storage import find_shared_storage
from dragoman.event_json import to_json
from dragoman.event_log import EventLog
from dragoman.events import (
    EvaluationDone,
    Event,
    HostSampled,
    MicroBatchesSplit,
    RunEnded,
    RunStarted,
    StepDone,
    StepsSummed,
)
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


def write_log(folder, worker: int, *events: Event) -> None:
    log = EventLog(RunFolder(folder).events_of(worker))
    for event in events:
        log.record(event)
    log.close()


def join(workers: ThreadWorkers, folder_of) -> list[EventSync]:
    """Every worker starts with what its folder holds, and joins the others."""

    def work(cluster: ThreadCluster) -> EventSync:
        event_sync = EventSync(RunFolder(folder_of(cluster)))
        assert event_sync.join_world(cluster, find_shared_storage(cluster, folder_of(cluster)))
        return event_sync

    return workers(work)


def test_a_new_world_gives_each_folder_what_it_missed(tmp_path):
    evaluations = [evaluation(step, 1.0, 1.0, float(step)) for step in (5, 10, 15)]
    write_log(tmp_path / "a", 0, evaluations[0], split_event(0, 2))
    write_log(tmp_path / "b", 0, evaluations[0])
    write_log(tmp_path / "b", 1, *(replace(each, worker=1) for each in evaluations), host_sample("b", 1))
    with ThreadWorkers("a", "b", "c") as workers:
        synced = join(workers, lambda cluster: tmp_path / cluster.host)
        folders = {host: [RunFolder(tmp_path / host).events(worker) for worker in range(2)] for host in "abc"}
    for host in "abc":
        assert sorted(map(to_json, folders[host][0])) == sorted(map(to_json, folders["a"][0])), "nothing twice"
        assert [type(event) for event in folders[host][1]].count(EvaluationDone) == 3
    assert HostSampled not in {type(event) for event in folders["a"][1]}, "there are too many of them"
    assert len({each.session_at_s for each in synced}) == 1
    missed = [[event.step for event in each.take_missed_evaluations()] for each in synced]
    assert missed == [[10, 15], [], [5, 10, 15]]


def test_the_last_step_of_a_killed_session_is_known_everywhere(tmp_path):
    write_log(tmp_path / "a", 0, *STEPS)
    with ThreadWorkers("a", "b") as workers:
        join(workers, lambda cluster: tmp_path / cluster.host)
    assert RunFolder(tmp_path / "b").events() == STEPS[-1:]


def test_the_steps_of_other_machines_are_thinned_and_the_end_of_a_session_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "THIN_AFTER_BYTES", 5000)
    monkeypatch.setattr(log_thinning, "WHOLE_STEPS", 16)
    monkeypatch.setattr(log_thinning, "MAX_SPANS", 16)
    started = next(event for event in synthetic_run(1) if isinstance(event, RunStarted))
    done = [replace(STEPS[0], worker=1, step=number, at_s=float(number)) for number in range(1, 301)]
    sync = EventSync(RunFolder(tmp_path))
    for step in done[:200]:
        sync._write([step])
    sync._write([replace(started, worker=1, at_s=200.5)])
    for step in done[200:]:
        sync._write([step])
    sync.close()
    events = RunFolder(tmp_path).events(1)
    assert sum(event.steps for event in events if isinstance(event, StepsSummed)) > 100
    assert sum(getattr(event, "steps", 1) for event in events) == 301
    known = EventSync(RunFolder(tmp_path))._known.values()
    assert [event.step for event in known if isinstance(event, StepDone)] == [200, 300]


def test_a_message_cannot_name_a_file_outside_of_the_run(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        sync_events(
            workers,
            lambda cluster: tmp_path / "runs" / cluster.host,
            lambda rank: [replace(split_event(rank, 1), worker=f"/../../{rank}")],
        )
    assert not list(tmp_path.rglob("*.jsonl"))


def test_all_workers_end_at_the_same_time(tmp_path):
    with ThreadWorkers("a", "b") as workers:
        ends = workers(
            lambda cluster: EventSync(RunFolder(tmp_path / cluster.host)).end(
                cluster, [0, 1], RunEnded(at_s=cluster.rank, step=1, reason="finished", elapsed_s=7.0 + cluster.rank)
            )
        )
    assert {(end.at_s, end.elapsed_s) for end in ends} == {(0, 7.0)}
