from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.step_stats import ROLLBACK_REQUESTS, StepStats, at_rank, packed_size

numbers = st.floats(0, 2.0**100, width=32)
"""Numbers that float32, the type of a packed vector, represents exactly."""

SCALAR_FIELDS = (
    "target_tokens", "stop_requests", "event_sync_requests", "rollback_requests", "worker_gradient_norm_sq",
)  # fmt: skip


@st.composite
def step_stats(draw: st.DrawFn) -> StepStats:
    world_size = draw(st.integers(1, 8))
    times = st.lists(numbers, min_size=world_size, max_size=world_size)
    losses = torch.tensor([draw(numbers), draw(numbers)])
    scalars = [draw(numbers) for _ in range(4)]
    return StepStats(losses, draw(numbers), draw(times), draw(times), *scalars)


@given(step_stats())
def test_unpack_is_the_reverse_of_pack(stats):
    unpacked = StepStats.unpack(stats.pack())
    assert unpacked.losses.tolist() == stats.losses.tolist()
    for field in SCALAR_FIELDS:
        assert getattr(unpacked, field) == getattr(stats, field)
    assert unpacked.compute_s == stats.compute_s
    assert unpacked.ready_s == stats.ready_s


@given(step_stats())
def test_the_place_of_rollback_requests_in_the_packed_vector_is_known(stats):
    assert stats.pack()[ROLLBACK_REQUESTS] == stats.rollback_requests


@given(step_stats())
def test_the_packed_size_depends_on_the_world_size_only(stats):
    assert len(stats.pack()) == packed_size(len(stats.compute_s))


def test_summed_stats_have_the_times_of_every_worker():
    workers = [
        StepStats(
            losses=torch.tensor([3.0, 2.0]),
            target_tokens=10,
            compute_s=at_rank(1.0 + rank, rank, 3),
            ready_s=at_rank(2.0 + rank, rank, 3),
            stop_requests=rank == 1,
        )
        for rank in range(3)
    ]
    summed = StepStats.unpack(torch.stack([stats.pack() for stats in workers]).sum(0))
    assert summed.losses.tolist() == [9, 6]
    assert summed.target_tokens == 30
    assert summed.compute_s == [1, 2, 3]
    assert summed.ready_s == [2, 3, 4]
    assert summed.stop_requested
    assert not summed.event_sync_requested


def test_a_worker_waits_for_the_last_one_to_be_ready():
    stats = StepStats(torch.zeros(2), 1, [0, 0, 0], [2.0, 5.0, 3.0])
    assert [stats.straggler_s(rank) for rank in range(3)] == [3, 0, 2]


@pytest.mark.gpu
def test_packing_does_not_wait_for_the_device():
    stats = StepStats(torch.zeros(2, device="cuda"), 5, [0.1, 0.0], [0.2, 0.0])
    in_host_memory = replace(stats, losses=torch.zeros(2)).pack()
    stats.pack()  # Allocates pinned memory.
    torch.cuda.set_sync_debug_mode("error")
    try:
        packed = stats.pack()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert packed.tolist() == in_host_memory.tolist()
