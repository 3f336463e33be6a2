import torch
from hypothesis import given
from hypothesis import strategies as st

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
def test_plain_exchange_sums_gradients_up_to_rounding(worlds, world_size, seed):
    gradients = [random_gradients(seed, rank) for rank in range(world_size)]
    results = worlds[world_size](
        lambda cluster: ExchangeWorker(cluster, METHODS["plain"]).all_reduce(gradients[cluster.rank])
    )
    for result in results:
        for actual, expected in zip(result, exact_sum(gradients), strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)


@few_examples
@given(world_sizes, seeds, st.sampled_from(["plain", "bf16", "powersgd"]))
def test_all_workers_get_the_same_gradient_bit_for_bit(worlds, world_size, seed, method):
    first, *others = worlds[world_size](
        lambda cluster: ExchangeWorker(cluster, METHODS[method]).all_reduce(random_gradients(seed, cluster.rank))
    )
    for result in others:
        assert all(torch.equal(actual, expected) for actual, expected in zip(result, first, strict=True))


@few_examples
@given(world_sizes, seeds)
def test_bf16_exchange_has_only_rounding_errors(worlds, world_size, seed):
    gradients = [random_gradients(seed, rank) for rank in range(world_size)]
    results = worlds[world_size](
        lambda cluster: ExchangeWorker(cluster, METHODS["bf16"]).all_reduce(gradients[cluster.rank])
    )
    rounding = torch.finfo(torch.bfloat16).eps / 2
    magnitudes = exact_sum([[gradient.abs() for gradient in each] for each in gradients])
    for actual, expected, magnitude in zip(results[0], exact_sum(gradients), magnitudes, strict=True):
        assert torch.all((actual - expected).abs() <= 1.01 * world_size * rounding * magnitude)
        assert not torch.equal(actual.double(), expected)
