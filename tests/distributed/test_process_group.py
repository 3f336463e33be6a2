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
def crew() -> Iterator[ThreadWorkers]:
    with ThreadWorkers("a", "b", "c") as made:
        yield made


def test_everyone_gets_the_sum(crew):
    assert [got.tolist() for got in crew(lambda cluster: cluster.sum(torch.tensor([1.0, cluster.rank])))] == [
        [3, 3]
    ] * 3


def test_a_sum_in_the_background_is_there_when_it_is_waited_for(crew):
    def work(cluster: ThreadCluster) -> list[float]:
        tensors = [torch.full((1000,), float(number + cluster.rank)) for number in range(4)]
        for finish in [cluster.start_sum(tensor) for tensor in tensors]:
            finish()
        return [tensor[-1].item() for tensor in tensors]

    assert crew(work) == [[3.0, 6.0, 9.0, 12.0]] * 3


def test_everyone_gets_everyones_item_whatever_its_size(crew):
    items = ["", {"step": 3, "words": "ü" * 5000}, None]
    assert crew(lambda cluster: cluster.gather(items[cluster.rank])) == [items] * 3
    assert crew(lambda cluster: cluster.share(items[cluster.rank])) == [""] * 3


def test_the_source_gives_its_values_to_all(crew):
    def work(cluster: ThreadCluster) -> int:
        tensor = torch.tensor([cluster.rank])
        cluster.broadcast(tensor, source=2)
        return int(tensor)

    assert crew(work) == [2, 2, 2]


def test_machines_are_counted_once_however_many_workers_they_have():
    with ThreadWorkers("a", "a", "b") as crew:
        assert [cluster.machines for cluster in crew.clusters] == [2] * 3


def lost_in(cluster: ThreadCluster) -> WorkersLostError:
    try:
        cluster.sum(torch.ones(1))
    except WorkersLostError as error:
        return error.with_traceback(None)  # Its frames would keep the group open until some later moment.
    pytest.fail("nobody was missed")


def wait_until_heard(cluster: ThreadCluster, crew: ThreadWorkers) -> None:
    """Until all others know what a worker does."""
    others = [other.pulse for other in crew.clusters if other is not cluster]
    while not all(pulse.last_words(cluster.member.name).startswith(cluster.pulse.doing) for pulse in others):
        time.sleep(0.02)


def test_whoever_keeps_the_others_waiting_is_named_with_its_last_words():
    with ThreadWorkers("a", "b", "c") as crew:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.pulse.doing = f"step {40 + cluster.rank}, computing"
            cluster.gather("all have begun")
            if cluster.rank == 1:
                wait_until_heard(cluster, crew)
                cluster.pulse.close()
                return None
            return lost_in(cluster)

        first, _, last = crew(work)
    for error in (first, last):
        assert error is not None
        assert [str(member) for member, _ in error.missing] == ["worker 1 on b"]
        assert error.missing[0][1].startswith("step 41, computing, heard ")


def test_whoever_leaves_keeps_nobody_waiting():
    with ThreadWorkers("a", "b") as crew:

        def work(cluster: ThreadCluster) -> WorkersLostError | None:
            cluster.pulse.doing = "step 1, computing"
            cluster.gather("all have begun")
            if cluster.rank == 1:
                wait_until_heard(cluster, crew)
                cluster.pulse.leave()
                return None
            return lost_in(cluster)

        assert crew(work)[0] is not None


def test_whoever_waits_long_says_for_whom_and_goes_on_waiting(monkeypatch):
    monkeypatch.setattr(process_group, "HANG_S", 0.1)
    told, asked = threading.Event(), []

    def tell(waited_for: object) -> None:
        asked.append(waited_for)
        told.set()

    with ThreadWorkers("a", "b") as crew:

        def work(cluster: ThreadCluster) -> float:
            cluster.pulse.doing = "step 1, waiting" if cluster.rank == 0 else "step 1, computing"
            cluster.gather("all have begun")
            if cluster.rank == 0:
                cluster.on_hang = tell
            else:
                told.wait()
            return cluster.sum(torch.ones(1)).item()

        assert crew(work) == [2, 2]
    assert len(asked) == 1
    ((member, _),) = asked[0]
    assert str(member) == "worker 1 on b"
