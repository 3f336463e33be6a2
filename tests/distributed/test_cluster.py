import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dragoman.distributed.cluster import HOST, StaticCluster, host_name, join_cluster
from dragoman.distributed.process_group import WorkersLostError


@pytest.fixture
def rendezvous(monkeypatch):
    """What torchrun and its like tell every worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv(HOST, "a")


def test_workers_that_torchrun_describes_meet(rendezvous):
    with ThreadPoolExecutor(max_workers=3) as pool:
        made = list(pool.map(lambda rank: StaticCluster(rank, 3, 3, torch.device("cpu")), range(3)))
        assert [cluster.rank for cluster in made] == [0, 1, 2]
        assert [str(member) for member in made[2].members] == [f"worker {worker} on a" for worker in range(3)]
        assert [cluster.is_main for cluster in made] == [True, False, False]
        assert list(pool.map(lambda cluster: cluster.all_gather_json(cluster.rank), made)) == [[0, 1, 2]] * 3
    for cluster in made:
        cluster.close()


def test_a_static_world_neither_changes_nor_goes_on_without_someone(rendezvous):
    alone = join_cluster()
    assert not alone.survives_losses
    assert not alone.refresh()
    with pytest.raises(WorkersLostError):
        alone.leave_world(WorkersLostError([], "no heartbeat"))
    alone.close()


def test_a_worker_alone_has_everything_to_itself(rendezvous):
    alone = join_cluster()
    assert (alone.rank, alone.world_size, alone.machines, alone.is_main) == (0, 1, 1, True)
    assert alone.all_gather_json("own") == ["own"]
    assert alone.broadcast_json("own") == "own"
    assert alone.all_reduce(torch.ones(2)).tolist() == [1, 1]
    assert alone.bytes_sent == 0
    alone.close()


def test_a_machine_is_called_as_the_launcher_calls_it(monkeypatch):
    monkeypatch.setenv(HOST, "gpu-1")
    assert host_name() == "gpu-1"
    monkeypatch.delenv(HOST)
    assert host_name() == socket.gethostname()
