"""Workers that reach each other, as threads with real connections."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from dragoman.distributed import process_group
from dragoman.distributed.process_group import WorkersLostError

from .thread_workers import ThreadCluster, ThreadWorkers


@pytest.fixture(scope="module")
def workers() -> Iterator[ThreadWorkers]:
    with ThreadWorkers("a", "b", "c") as made:
        yield made


def test_everyone_gets_the_sum(workers):
    assert [got.tolist() for got in workers(lambda cluster: cluster.all_reduce(torch.tensor([1.0, cluster.rank])))] == [
        [3, 3]
    ] * 3


def test_a_sum_in_the_background_is_there_when_it_is_waited_for(workers):
    def work(cluster: ThreadCluster) -> list[float]:
        tensors = [torch.full((1000,), float(number + cluster.rank)) for number in range(4)]
        for finish in [cluster.all_reduce_async(tensor) for tensor in tensors]:
            finish()
        return [tensor[-1].item() for tensor in tensors]

    assert workers(work) == [[3.0, 6.0, 9.0, 12.0]] * 3


def test_everyone_gets_everyones_item_whatever_its_size(workers):
    items = ["", {"step": 3, "words": "ü" * 5000}, None]
    assert workers(lambda cluster: cluster.all_gather_json(items[cluster.rank])) == [items] * 3
    assert workers(lambda cluster: cluster.broadcast_json(items[cluster.rank])) == [""] * 3


def test_the_source_gives_its_values_to_all(workers):
    def work(cluster: ThreadCluster) -> int:
        tensor = torch.tensor([cluster.rank])
        cluster.broadcast(tensor, source=2)
        return int(tensor)

    assert workers(work) == [2, 2, 2]


def test_machines_are_counted_once_however_many_workers_they_have():
    with ThreadWorkers("a", "a", "b") as workers:
        assert [cluster.machines for cluster in workers.clusters] == [2] * 3


def lost_in(cluster: ThreadCluster) -> WorkersLostError:
    try:
        cluster.all_reduce(torch.ones(1))
    except WorkersLostError as error:
        return error.with_traceback(None)  # Its frames would keep the group open until some later moment.
    pytest.fail("nobody was missed")


def wait_until_heard(cluster: ThreadCluster, workers: ThreadWorkers) -> None:
    """Until all others know what a worker does."""
    others = [other.heartbeat for other in workers.clusters if other is not cluster]
    while not all(
        heartbeat.last_activity(cluster.member.name).startswith(cluster.heartbeat.activity) for heartbeat in others
    ):
        time.sleep(0.02)


def test_whoever_keeps_the_others_waiting_is_named_with_its_last_words():
    with ThreadWorkers("a", "b", "c") as workers:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.heartbeat.activity = f"step {40 + cluster.rank}, computing"
            cluster.all_gather_json("all have begun")
            if cluster.rank == 1:
                wait_until_heard(cluster, workers)
                cluster.heartbeat.close()
                return None
            return lost_in(cluster)

        first, _, last = workers(work)
    for error in (first, last):
        assert error is not None
        assert [str(member) for member, _ in error.missing] == ["worker 1 on b"]
        assert error.missing[0][1].startswith("step 41, computing, heard ")


def test_whoever_leaves_keeps_nobody_waiting():
    with ThreadWorkers("a", "b") as workers:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.heartbeat.activity = "step 1, computing"
            cluster.all_gather_json("all have begun")
            if cluster.rank == 1:
                wait_until_heard(cluster, workers)
                cluster.heartbeat.leave()
                return None
            return lost_in(cluster)

        assert workers(work)[0] is not None


def test_whoever_waits_long_says_for_whom_and_goes_on_waiting(monkeypatch):
    monkeypatch.setattr(process_group, "STALL_S", 0.1)
    told, asked = threading.Event(), []

    def tell(waited_for: object) -> None:
        asked.append(waited_for)
        told.set()

    with ThreadWorkers("a", "b") as workers:

        def work(cluster: ThreadCluster) -> float:
            cluster.heartbeat.activity = "step 1, waiting" if cluster.rank == 0 else "step 1, computing"
            cluster.all_gather_json("all have begun")
            if cluster.rank == 0:
                cluster.on_stall = tell
            else:
                told.wait()
            return cluster.all_reduce(torch.ones(1)).item()

        assert workers(work) == [2, 2]
    assert len(asked) == 1
    ((member, _),) = asked[0]
    assert str(member) == "worker 1 on b"
