from collections.abc import Iterator
from dataclasses import asdict

import pytest
import torch
from torch import Tensor

from dragoman.batching.data_loader import Position
from dragoman.distributed import state_sync
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.state_sync import ReplicaProgress, broadcast_state, compare_progress
from dragoman.training.snapshot import Snapshot, TrainingState

from .thread_workers import ThreadWorkers


@pytest.fixture(scope="module")
def workers() -> Iterator[ThreadWorkers]:
    with ThreadWorkers("a", "b", "c") as workers:
        yield workers


@pytest.mark.parametrize(
    ("progress", "furthest"),
    [
        (((3, True, "x"), (5, True, "x"), (4, True, "x")), 1),
        (((5, False, "x"), (5, True, "x"), (5, False, "x")), 1),
        (((5, True, "x"), (5, True, "y"), (5, True, "x")), 0),
        (((0, True, ""), (0, True, ""), (7, False, "y")), 2),
        (((-1, True, ""), (-1, True, ""), (-1, True, "")), 0),
    ],
)
def test_the_furthest_worker_or_the_first_of_equals_is_chosen(workers, progress, furthest):
    known = [ReplicaProgress(*each) for each in progress]
    for rank, gathered, _ in workers(lambda cluster: compare_progress(cluster, known[cluster.rank])):
        assert rank == furthest
        assert gathered == known


def test_each_world_has_its_own_history(workers):
    def histories(world: ThreadWorkers, step: int) -> set[str]:
        found = world(lambda cluster: compare_progress(cluster, ReplicaProgress(step, True, "x")))
        return {history for _, _, history in found}

    here, later = histories(workers, 5), histories(workers, 6)
    with ThreadWorkers("a", "b") as halved:
        half = histories(halved, 5)
    assert len(here) == len(later) == len(half) == 1
    assert len(here | later | half) == 3


def snapshot_of(rank: int, *, averaged: bool) -> Snapshot:
    """The state of a worker, with every dtype that a checkpoint may have."""

    def tensors(kind: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(10 * rank + kind)
        values = torch.randn(4, 3, generator=generator)
        return {"matrix": values, "half": values.bfloat16(), "step": torch.tensor(rank), "nothing": torch.empty(0)}

    state = TrainingState(step=rank, position=Position(1, rank), best={"loss": float(rank)}, elapsed_s=rank + 0.5)
    return Snapshot(state, tensors(0), tensors(1) if averaged else None, tensors(2))


@pytest.fixture(params=[16, 100, 1 << 26])
def chunk_bytes(request, monkeypatch) -> None:
    """Messages of one tensor, of a few, and of all."""
    monkeypatch.setattr(state_sync, "CHUNK_BYTES", request.param)


def received_by(cluster: Cluster, source: int, snapshot: Snapshot) -> Snapshot:
    """The snapshot of one worker as another one receives it."""
    sent = (asdict(snapshot.state), snapshot.files()) if cluster.rank == source else ()
    state, tensors = broadcast_state(cluster, source, *sent)
    return Snapshot.from_files(TrainingState.from_json(state), tensors)


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("source", [0, 2])
@pytest.mark.usefixtures("chunk_bytes")
def test_every_worker_gets_the_state_of_the_source_bit_for_bit(workers, source, averaged):
    expected = snapshot_of(source, averaged=averaged)
    for got in workers(lambda cluster: received_by(cluster, source, expected)):
        assert got.state == expected.state
        assert got.files().keys() == expected.files().keys()
        for file, tensors in expected.files().items():
            assert {name: tensor.dtype for name, tensor in got.files()[file].items()} == {
                name: tensor.dtype for name, tensor in tensors.items()
            }
            assert all(torch.equal(got.files()[file][name], tensor) for name, tensor in tensors.items())


def test_a_group_without_tensors_is_received_as_such(workers):
    sent = ("before the first step", {"weights": {"bias": torch.ones(2)}, "optimizer": {}})
    for header, tensors in workers(lambda cluster: broadcast_state(cluster, 0, *(sent if cluster.rank == 0 else ()))):
        assert header == "before the first step"
        assert tensors["optimizer"] == {}
        assert tensors["weights"]["bias"].tolist() == [1, 1]


def test_a_received_state_shares_no_memory_with_its_source(workers):
    sent = snapshot_of(1, averaged=False)
    received = workers(lambda cluster: received_by(cluster, 1, sent))
    received[1].weights["matrix"].zero_()
    assert sent.weights["matrix"].abs().sum() > 0
    assert received[0].weights["matrix"].abs().sum() > 0
