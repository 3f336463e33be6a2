import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dragoman.distributed.cluster import HOST, StaticCluster, host_name, join_cluster, launched_externally
from dragoman.distributed.process_group import WorkersLostError


@pytest.fixture
def rendezvous(monkeypatch):
    """The environment variables that torchrun sets for every worker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv(HOST, "a")


def test_workers_join_as_the_environment_describes(rendezvous):
    with ThreadPoolExecutor(max_workers=3) as pool:
        clusters = list(pool.map(lambda rank: StaticCluster(rank, 3, 3, torch.device("cpu")), range(3)))
        assert [cluster.rank for cluster in clusters] == [0, 1, 2]
        assert [str(member) for member in clusters[2].members] == [f"worker {worker} on a" for worker in range(3)]
        assert [cluster.is_main for cluster in clusters] == [True, False, False]
        assert list(pool.map(lambda cluster: cluster.all_gather_json(cluster.rank), clusters)) == [[0, 1, 2]] * 3
    for cluster in clusters:
        cluster.close()


def test_a_static_world_never_changes_and_does_not_survive_losses(rendezvous):
    alone = join_cluster()
    assert not alone.survives_losses
    assert not alone.refresh()
    with pytest.raises(WorkersLostError):
        alone.leave_world(WorkersLostError([], "no heartbeat"))
    alone.close()


def test_collectives_of_a_single_worker_return_its_own_values(rendezvous):
    alone = join_cluster()
    assert (alone.rank, alone.world_size, alone.machines, alone.is_main) == (0, 1, 1, True)
    assert alone.all_gather_json("own") == ["own"]
    assert alone.broadcast_json("own") == "own"
    assert alone.all_reduce(torch.ones(2)).tolist() == [1, 1]
    assert alone.bytes_sent == 0
    alone.close()


def test_the_launcher_can_set_the_host_name(monkeypatch):
    monkeypatch.setenv(HOST, "gpu-1")
    assert host_name() == "gpu-1"
    monkeypatch.delenv(HOST)
    assert host_name() == socket.gethostname()


def test_a_process_with_rank_and_world_size_was_launched_externally(monkeypatch):
    assert not launched_externally()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched_externally()
