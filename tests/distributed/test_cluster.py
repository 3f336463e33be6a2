import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dragoman.distributed.cluster import HOST, StaticCluster, host_name, join


@pytest.fixture
def meeting_place(monkeypatch):
    """What torchrun and its like tell every worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv(HOST, "a")


def test_workers_that_torchrun_describes_meet(meeting_place):
    with ThreadPoolExecutor(max_workers=3) as pool:
        made = list(pool.map(lambda rank: StaticCluster(rank, 3, 3, torch.device("cpu")), range(3)))
        assert [cluster.rank for cluster in made] == [0, 1, 2]
        assert [str(member) for member in made[2].members] == [f"worker {worker} on a" for worker in range(3)]
        assert [cluster.is_first for cluster in made] == [True, False, False]
        assert list(pool.map(lambda cluster: cluster.gather(cluster.rank), made)) == [[0, 1, 2]] * 3
    for cluster in made:
        cluster.leave()


def test_a_static_world_neither_changes_nor_goes_on_without_someone(meeting_place):
    alone = join()
    assert not alone.elastic
    assert not alone.renew()
    with pytest.raises(NotImplementedError):
        alone.lose()
    alone.leave()


def test_a_worker_alone_has_everything_to_itself(meeting_place):
    alone = join()
    assert (alone.rank, alone.world, alone.machines, alone.is_first) == (0, 1, 1, True)
    assert alone.gather("mine") == ["mine"]
    assert alone.share("mine") == "mine"
    assert alone.sum(torch.ones(2)).tolist() == [1, 1]
    assert alone.bytes_sent == 0
    alone.leave()


def test_a_machine_is_called_as_the_launcher_calls_it(monkeypatch):
    monkeypatch.setenv(HOST, "gpu-1")
    assert host_name() == "gpu-1"
    monkeypatch.delenv(HOST)
    assert host_name() == socket.gethostname()
