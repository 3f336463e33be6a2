from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.batching.data_loader import Position
from dragoman.distributed import state_sync
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import UnmergedSteps
from dragoman.distributed.state_sync import (
    Origin,
    ReplicaProgress,
    broadcast_state,
    compare_progress,
    find_late,
    merge_weights,
)
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


def test_progress_is_known_to_all_workers_as_it_is(workers):
    known = [
        ReplicaProgress(5, False, "x", UnmergedSteps(2, 100, 900, 2, 1), {"c": Origin("x", 3, 0)}, [0.25, 0.75]),
        ReplicaProgress(5, True, "y", absent={"d": Origin("w", 0, 7)}),
        ReplicaProgress(3, True, "x"),
    ]
    for _, gathered, _ in workers(lambda cluster: compare_progress(cluster, known[cluster.rank])):
        assert gathered == known
        assert gathered[0].shares == [0.25, 0.75]


@given(steps=st.integers(0, 9), fragments=st.integers(0, 9), other_steps=st.integers(0, 9), other=st.integers(0, 9))
def test_workers_that_are_behind_are_those_that_lack_steps_or_fragments_of_the_same_interval(
    steps, fragments, other_steps, other
):
    one, two = (
        ReplicaProgress(7 + taken, False, "x", UnmergedSteps(taken, taken, 9, taken, averaged if taken else 0))
        for taken, averaged in ((steps, fragments), (other_steps, other))
    )
    behind, ahead = sorted([one, two], key=lambda each: each.order)
    assert ahead.order >= behind.order
    both_local = behind.unmerged.steps > 0 and ahead.unmerged.steps > 0
    assert behind.is_behind(ahead) == (both_local and behind != ahead)
    assert behind.merges_with(ahead) == (both_local and not behind.is_behind(ahead))
    assert not replace(behind, history="y").is_behind(ahead)
    assert not replace(behind, step=behind.step + 1).is_behind(ahead), "another synchronisation"


EVERY = 4
SHARES = st.lists(st.integers(0, 1000), min_size=2, max_size=6).filter(any)


@given(SHARES, st.integers(1, 5))
def test_late_workers_are_merged_by_their_part_of_the_batches_and_the_others_by_their_tokens(shares, in_time):
    """Some workers continue from a common synchronisation, and the late ones meet them one interval later."""
    names, batch_tokens = [f"worker {rank}" for rank in range(len(shares))], sum(shares)
    arrived = [
        ReplicaProgress(EVERY, False, "first world", UnmergedSteps(EVERY, max(1, tokens), batch_tokens, EVERY))
        for tokens in shares
    ]
    weights = merge_weights(arrived[:in_time], arrived[0], [])
    assert sum(weights) == pytest.approx(1)
    left = dict.fromkeys(names[in_time:], arrived[0].origin)
    ahead = ReplicaProgress(2 * EVERY, True, "second world", absent=left)
    progress = [ahead] * len(shares[:in_time]) + arrived[in_time:]
    late = find_late(names, progress, ahead)
    assert late == list(range(len(shares)))[in_time:]
    assert merge_weights(progress, ahead, late) == pytest.approx(
        [0.0] * len(shares[:in_time]) + [max(1, tokens) / batch_tokens for tokens in shares[in_time:]]
    )


@pytest.mark.parametrize(
    "late",
    [
        ReplicaProgress(8, False, "first", UnmergedSteps(4, 10, 30, 4)),  # Averaged with the others, before it failed.
        ReplicaProgress(4, False, "another", UnmergedSteps(4, 10, 30, 4)),  # It continued in another world.
        ReplicaProgress(4, True, "first"),  # It has no steps of its own.
    ],
)
def test_steps_that_the_others_may_have_are_not_merged_again(late):
    ahead = ReplicaProgress(12, True, "second", absent={"late": ("first", 0)})
    assert find_late(["first", "late"], [ahead, late], ahead) == []


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
