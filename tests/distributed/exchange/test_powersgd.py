import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.distributed.cluster import Cluster

from .exchange_worker import (
    METHODS,
    ExchangeWorker,
    exact_sum,
    few_examples,
    random_gradients,
    seeds,
    world_sizes,
)


@few_examples
@given(world_sizes, seeds)
def test_powersgd_is_exact_for_gradients_of_its_rank(worlds, world_size, seed):
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(24, 2, generator=generator)
    gradients = [
        [left @ torch.randn(2, 18, generator=generator), *random_gradients(seed, rank)[1:]]
        for rank in range(world_size)
    ]
    results = worlds[world_size](
        lambda cluster: ExchangeWorker(cluster, METHODS["powersgd"]).all_reduce(gradients[cluster.rank])
    )
    for actual, expected in zip(results[0], exact_sum(gradients), strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-3, atol=1e-3)


@few_examples
@given(world_sizes, seeds)
def test_later_steps_send_the_residual_of_earlier_ones(worlds, world_size, seed):
    """One gradient, then zeros: all steps together send the whole gradient."""
    shape = (24, 18)
    gradients = [random_gradients(seed, rank, [shape]) for rank in range(world_size)]

    def work(cluster: Cluster) -> list[Tensor]:
        worker = ExchangeWorker(cluster, METHODS["powersgd"], [shape])
        return [worker.all_reduce(gradients[cluster.rank] if step == 0 else [None])[0] for step in range(30)]

    steps = worlds[world_size](work)[0]
    expected = exact_sum(gradients)[0]
    first, last = (float((expected - torch.stack(steps[:count]).sum(0)).norm() / expected.norm()) for count in (1, 30))
    assert first > 0.3
    assert last < 1e-2


@few_examples
@given(world_sizes, seeds, st.integers(0, 4), st.sampled_from([math.nan, math.inf, 3e38]), st.sampled_from([0, 1]))
def test_a_step_that_is_not_finite_leaves_no_trace(worlds, world_size, seed, bad_step, value, place):
    """The steps after it give the same gradients as without it, bit for bit, and all workers skip it."""

    def gradients(step: int, rank: int) -> list[Tensor]:
        found = random_gradients(seed + 100 * step, rank)
        if step == bad_step and rank == 1:
            found[place].fill_(value)
        return found

    def work(cluster: Cluster) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
        disturbed, undisturbed = (ExchangeWorker(cluster, METHODS["powersgd"]) for _ in range(2))
        return (
            [disturbed.all_reduce(gradients(step, cluster.rank)) for step in range(5)],
            [undisturbed.all_reduce(gradients(step, cluster.rank)) for step in range(5) if step != bad_step],
        )

    for disturbed, undisturbed in worlds[world_size](work):
        skipped = disturbed.pop(bad_step)
        norm = torch.cat([gradient.flatten() for gradient in skipped]).norm()
        assert not norm.isfinite()
        for step, expected in zip(disturbed, undisturbed, strict=True):
            assert all(torch.equal(one, other) for one, other in zip(step, expected, strict=True))
