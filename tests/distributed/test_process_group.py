import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import torch

from dragoman.distributed import process_group
from dragoman.distributed.process_group import WorkersLateError, WorkersLostError

from .thread_workers import ThreadCluster, ThreadWorkers, wait_for_closed_groups


@pytest.fixture(scope="module")
def workers() -> Iterator[ThreadWorkers]:
    with ThreadWorkers("a", "b", "c") as workers:
        yield workers


def test_all_reduce_gives_every_worker_the_sum(workers):
    assert [got.tolist() for got in workers(lambda cluster: cluster.all_reduce(torch.tensor([1.0, cluster.rank])))] == [
        [3, 3]
    ] * 3


def test_asynchronous_all_reduces_are_complete_after_their_wait(workers):
    def work(cluster: ThreadCluster) -> list[float]:
        tensors = [torch.full((1000,), float(number + cluster.rank)) for number in range(4)]
        for finish in [cluster.all_reduce_async(tensor) for tensor in tensors]:
            finish()
        return [tensor[-1].item() for tensor in tensors]

    assert workers(work) == [[3.0, 6.0, 9.0, 12.0]] * 3


def test_the_time_of_collectives_counts_while_they_are_under_way(workers):
    all_began = threading.Barrier(3)

    def work(cluster: ThreadCluster) -> tuple[float, float]:
        before_s = cluster.communication_s
        if cluster.rank == 0:
            all_began.wait()  # The others wait for this worker.
            cluster.all_reduce(torch.ones(1))
            return 0.0, 0.0
        finish = cluster.all_reduce_async(torch.ones(1))
        time.sleep(0.05)
        under_way_s = cluster.communication_s - before_s
        all_began.wait()
        finish()
        return under_way_s, cluster.communication_s - before_s

    for under_way_s, total_s in workers(work)[1:]:
        assert 0.05 <= under_way_s < total_s


def test_json_values_of_any_size_are_gathered(workers):
    items = ["", {"step": 3, "text": "ü" * 5000}, None]
    assert workers(lambda cluster: cluster.all_gather_json(items[cluster.rank])) == [items] * 3
    assert workers(lambda cluster: cluster.broadcast_json(items[cluster.rank])) == [""] * 3


def test_broadcast_copies_the_values_of_the_source(workers):
    def work(cluster: ThreadCluster) -> int:
        tensor = torch.tensor([cluster.rank])
        cluster.broadcast(tensor, source=2)
        return int(tensor)

    assert workers(work) == [2, 2, 2]


def test_a_machine_with_several_workers_is_counted_once():
    with ThreadWorkers("a", "a", "b") as workers:
        assert [cluster.machines for cluster in workers.clusters] == [2] * 3


def lost_during_all_reduce(cluster: ThreadCluster) -> WorkersLostError:
    try:
        cluster.all_reduce(torch.ones(1))
    except WorkersLostError as error:
        return error.with_traceback(None)  # A traceback would keep the group open.
    pytest.fail("no worker was lost")


def wait_until_heard(cluster: ThreadCluster, workers: ThreadWorkers) -> None:
    """Wait until all others know the activity of a worker."""
    others = [other.heartbeat for other in workers.clusters if other is not cluster]
    while not all(
        heartbeat.last_activity(cluster.member.name).startswith(cluster.heartbeat.activity) for heartbeat in others
    ):
        time.sleep(0.02)


def test_the_error_names_the_silent_worker_and_its_last_activity():
    with ThreadWorkers("a", "b", "c") as workers:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.heartbeat.activity = f"step {40 + cluster.rank}, computing"
            cluster.all_gather_json("all have started")
            if cluster.rank == 1:
                wait_until_heard(cluster, workers)
                cluster.heartbeat.close()
                return None
            return lost_during_all_reduce(cluster)

        first, _, last = workers(work)
    for error in (first, last):
        assert error is not None
        assert [str(member) for member, _ in error.missing] == ["worker 1 on b"]
        assert error.missing[0][1].startswith("step 41, computing, heard ")


def test_an_abandoned_group_gives_its_connections_and_threads_back(monkeypatch):
    monkeypatch.setattr(process_group, "CLOSE_S", 0.0)
    this_process = psutil.Process()
    with ThreadWorkers("a", "b") as workers:
        workers(lambda cluster: cluster.all_reduce(torch.ones(1)))
        fds, threads = this_process.num_fds(), this_process.num_threads()
        groups = [cluster._group for cluster in workers.clusters]
        pending = groups[0].all_reduce_async(torch.ones(1))  # The other worker never takes part.
        for group in groups:
            group.abandon()
        wait_for_closed_groups()
        assert this_process.num_fds() < fds
        assert this_process.num_threads() < threads
        with pytest.raises(WorkersLostError):
            pending()
        with pytest.raises(WorkersLostError):
            groups[0].all_reduce(torch.ones(1))


def test_a_worker_that_leaves_the_world_counts_as_lost():
    with ThreadWorkers("a", "b") as workers:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.heartbeat.activity = "step 1, computing"
            cluster.all_gather_json("all have started")
            if cluster.rank == 1:
                wait_until_heard(cluster, workers)
                cluster.heartbeat.leave()
                return None
            return lost_during_all_reduce(cluster)

        assert workers(work)[0] is not None


def test_a_long_wait_is_reported_once_and_continues(monkeypatch):
    monkeypatch.setattr(process_group, "STALL_S", 0.1)
    reported, reports = threading.Event(), []

    def report(waited_for: object) -> None:
        reports.append(waited_for)
        reported.set()

    with ThreadWorkers("a", "b") as workers:

        def work(cluster: ThreadCluster) -> float:
            cluster.heartbeat.activity = "step 1, waiting" if cluster.rank == 0 else "step 1, computing"
            cluster.all_gather_json("all have started")
            if cluster.rank == 0:
                cluster.on_stall = report
            else:
                reported.wait()
            return cluster.all_reduce(torch.ones(1)).item()

        assert workers(work) == [2, 2]
    assert len(reports) == 1
    ((member, _),) = reports[0]
    assert str(member) == "worker 1 on b"


@pytest.mark.parametrize(
    "raw",
    [
        "Connection closed by peer [10.0.0.1]:51234. This may indicate a remote failure such as a network error.",
        "Read error [10.0.0.1]:51234: Connection reset by peer",
        "The client socket has timed out after 10000ms while trying to connect to (10.0.0.1, 4321).",
        "Broken pipe",
    ],
)
def test_the_many_words_of_libraries_for_a_lost_connection_become_two(raw):
    assert str(WorkersLostError([], raw)) == "a worker was lost: connection closed"


def test_other_reasons_of_a_loss_are_kept():
    assert WorkersLostError([], "no heartbeat").reason == "no heartbeat"
    assert WorkersLostError([], "CUDA error: out of memory").reason == "CUDA error: out of memory"


def test_all_workers_leave_although_they_disagree_on_who_was_in_time():
    given_up = threading.Event()

    def synchronize(cluster: ThreadCluster) -> None:
        cluster.arrive()
        # Worker 1 has more patience, and may begin the collective.
        cluster.wait_for_quorum(0.6, 0.0 if cluster.rank == 0 else 1e6)
        cluster.all_reduce(torch.ones(1))

    def work(cluster: ThreadCluster) -> list[str]:
        cluster.all_gather_json("all have started")
        if cluster.rank == 2:
            given_up.wait()
        with pytest.raises(WorkersLateError) as raised:
            synchronize(cluster)
        given_up.set()
        return [member.host for member, _ in raised.value.missing]

    with ThreadWorkers("a", "b", "c") as workers:
        first, *others = workers(work)
    assert first == ["c"]
    assert all(late in (["c"], []) for late in others)


def test_a_quorum_of_all_workers_has_no_grace_period(workers):
    def synchronize(cluster: ThreadCluster) -> None:
        cluster.arrive()
        cluster.wait_for_quorum(1.0, 0.0)

    assert workers(synchronize) == [None] * 3
