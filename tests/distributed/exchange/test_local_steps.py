import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.distributed.choose_exchange import build, from_settings
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.quantized_blocks import BLOCK
from dragoman.distributed.exchange.step_length import step_length_ratio
from dragoman.settings import ExchangeSettings

from .exchange_worker import (
    BATCH_TOKENS,
    METHODS,
    ExchangeWorker,
    few_examples,
    local_steps,
    random_gradients,
    random_updates,
    seeds,
    world_sizes,
)

wire_formats = pytest.mark.parametrize("wire_format", ["bf16", "int8", "int2"])
overlaps = pytest.mark.parametrize("overlap", [1, 2])


@overlaps
@pytest.mark.parametrize("wire_format", ["bf16", "int8"])
@few_examples
@given(world_size=world_sizes, seed=seeds, every=st.integers(1, 3), steps=st.integers(1, 5))
def test_without_outer_momentum_workers_get_the_mean_of_their_weights(
    worlds, wire_format, overlap, world_size, seed, every, steps
):
    """The error of an int8 delta is at most half a level, and that of its mean; the error of bf16 one rounding."""
    updates = [random_updates(seed, rank, steps) for rank in range(world_size)]

    def work(cluster: Cluster) -> ExchangeWorker:
        build = local_steps(every, wire_format, learning_rate=1.0, momentum=0.0, overlap=overlap)
        worker = ExchangeWorker(cluster, build)
        worker.take_steps(updates[cluster.rank])
        return worker

    workers = worlds[world_size](work)
    start = ExchangeWorker(Cluster(0, 1, 1, torch.device("cpu")), METHODS["plain"]).weights
    mean = torch.stack([torch.stack(each).sum(0) for each in updates]).double().mean(0)
    assert start.numel() < BLOCK
    largest = max(float(torch.stack(each).abs().sum(0).max()) for each in updates)
    relative_error = 2 * 0.5 / 128 if wire_format == "int8" else torch.finfo(torch.bfloat16).eps
    max_error = 1.05 * largest * relative_error * steps + 1e-6
    torch.testing.assert_close(workers[0].weights.double(), start.double() + mean, rtol=0, atol=max_error)


@few_examples
@given(seed=seeds, size=st.integers(1, 3 * BLOCK), spread=st.integers(0, 12))
def test_the_error_of_an_int8_mean_is_bounded_by_the_scale_of_each_block(worlds, seed, size, spread):
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.arange(size) // BLOCK
    updates = [torch.randn(size, generator=generator) * 10.0 ** (spread * blocks - 12) for _ in range(2)]

    def work(cluster: Cluster) -> Tensor:
        worker = ExchangeWorker(cluster, local_steps(wire_format="int8", learning_rate=1.0, momentum=0.0), [(size,)])
        worker.add_to_weights(-worker.weights)  # Start from 0, so that no bits are lost in the sum with the weights.
        worker.exchange.load_state_dict({})
        worker.take_steps([updates[cluster.rank]])
        return worker.weights

    for weights in worlds[2](work):
        error = (weights - torch.stack(updates).mean(0)).abs()
        for block in range(int(blocks.max()) + 1):
            scales = [float(update[blocks == block].abs().max()) / 128 for update in updates]
            assert float(error[blocks == block].max()) <= 1.01 * sum(scales) / 2 / 2, "rounded once, not twice"


@pytest.mark.parametrize("overlap", [1, 3])
@pytest.mark.parametrize("wire_format", ["int8", "int4", "int2"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_what_rounding_loses_comes_later(worlds, world_size, wire_format, overlap):
    """The workers' weights follow the sum of all updates: the distance does not grow with the number of steps."""

    def work(cluster: Cluster) -> list[float]:
        build = local_steps(3, wire_format, learning_rate=1.0, momentum=0.0, overlap=overlap)
        worker = ExchangeWorker(cluster, build)
        start, distances = worker.weights.double(), []
        for turn in range(8):
            worker.take_steps([each for _ in range(10) for each in every_update[cluster.rank]], flush_last=False)
            expected = start + (turn + 1) * 10 * mean
            distances.append(float((worker.weights - expected).abs().max() / mean.abs().max()))
        worker.take_steps([torch.zeros_like(mean, dtype=torch.float32)])  # Ends what is under way.
        return distances

    every_update = [random_updates(1, rank, 3) for rank in range(world_size)]
    mean = torch.stack([torch.stack(each).sum(0) for each in every_update]).double().mean(0)
    for distances in worlds[world_size](work):
        assert distances[-1] <= 1.25 * distances[4] + 0.01, "what is lost for ever would grow from 5 to 8 turns"


@overlaps
@wire_formats
@few_examples
@given(world_size=world_sizes, seed=seeds, every=st.integers(1, 4), steps=st.integers(1, 9))
def test_after_a_flush_all_workers_have_the_same_weights_bit_for_bit(
    worlds, wire_format, overlap, world_size, seed, every, steps
):
    def work(cluster: Cluster) -> ExchangeWorker:
        worker = ExchangeWorker(cluster, local_steps(every, wire_format, overlap=overlap))
        worker.take_steps(random_updates(seed, cluster.rank, steps))
        return worker

    workers = worlds[world_size](work)
    assert all(worker.exchange.in_sync for worker in workers)
    assert all(torch.equal(worker.weights, workers[0].weights) for worker in workers)


def test_between_synchronisations_the_weights_of_workers_differ(worlds):
    def work(cluster: Cluster) -> ExchangeWorker:
        worker = ExchangeWorker(cluster, local_steps(every=3))
        worker.take_steps(random_updates(1, cluster.rank, 2), flush_last=False)
        return worker

    first, second = worlds[2](work)
    assert not first.exchange.in_sync
    assert not torch.equal(first.weights, second.weights)


@given(norm_ratio=st.floats(0, 1), world_size=st.integers(2, 64), steps=st.integers(1, 200))
def test_the_step_length_ratio_is_largest_for_independent_deltas(norm_ratio, world_size, steps):
    assert 1 <= step_length_ratio(norm_ratio, world_size, steps) <= world_size**0.5
    assert step_length_ratio(1.0, world_size, steps) == 1
    assert step_length_ratio(1 / world_size, world_size, steps) == pytest.approx(world_size**0.5, rel=0.1)


@pytest.mark.parametrize(("equal_updates", "factor"), [(True, 1.0), (False, 2**0.5)])
@overlaps
@pytest.mark.parametrize("wire_format", ["bf16", "int8", "int4", "int2"])
def test_independent_updates_raise_the_learning_rate_factor(worlds, wire_format, overlap, equal_updates, factor):
    def work(cluster: Cluster) -> tuple[float, float]:
        build = local_steps(2, wire_format, learning_rate=1.0, momentum=0.0, overlap=overlap)
        worker = ExchangeWorker(cluster, build)
        worker.take_steps(random_updates(1, 0 if equal_updates else cluster.rank, 60))
        restored = ExchangeWorker(cluster, local_steps(2, wire_format))
        restored.exchange.load_state_dict(worker.exchange.state_dict())
        return worker.exchange.learning_rate_factor, restored.exchange.learning_rate_factor

    first, second = worlds[2](work)
    assert first == second
    learned, restored = first
    assert learned == pytest.approx(factor, rel=0.06)
    assert restored == pytest.approx(learned)


def test_steps_are_not_lengthened_where_that_is_turned_off(worlds):
    def work(cluster: Cluster) -> float:
        settings = ExchangeSettings(method="local", every=2, lengthen_steps=False)
        worker = ExchangeWorker(cluster, lambda *given: build(from_settings(settings), settings, *given))
        worker.take_steps(random_updates(1, cluster.rank, 60))
        return worker.exchange.learning_rate_factor

    assert worlds[2](work) == [1.0, 1.0]


def test_a_local_gradient_is_the_mean_over_the_workers_own_tokens(worlds):
    gradients = random_gradients(1, 0)

    def work(cluster: Cluster) -> list[Tensor]:
        worker = ExchangeWorker(cluster, local_steps(every=3))
        return worker.all_reduce(gradients, worker.stats(tokens=BATCH_TOKENS / 4))

    for actual, gradient in zip(worlds[2](work)[0], gradients, strict=True):
        torch.testing.assert_close(actual, 4 * gradient)


def test_a_restored_exchange_continues_like_the_saved_one(worlds):
    def work(cluster: Cluster) -> tuple[Tensor, Tensor]:
        saved, restored = (ExchangeWorker(cluster, local_steps(every=2)) for _ in range(2))
        saved.take_steps(random_updates(1, cluster.rank, 2))
        restored.add_to_weights(saved.weights - restored.weights)
        restored.exchange.load_state_dict(
            {name: tensor.clone() for name, tensor in saved.exchange.state_dict().items()}
        )
        for worker in (saved, restored):
            worker.take_steps(random_updates(2, cluster.rank, 2))
        return saved.weights, restored.weights

    saved, restored = worlds[2](work)[0]
    torch.testing.assert_close(restored, saved, rtol=0, atol=1e-6)


def test_later_steps_do_not_change_a_loaded_state(worlds):
    def work(cluster: Cluster) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        worker = ExchangeWorker(cluster, local_steps(every=1))
        worker.take_steps(random_updates(1, cluster.rank, 1))
        state = {name: tensor.clone() for name, tensor in worker.exchange.state_dict().items()}
        copy = {name: tensor.clone() for name, tensor in state.items()}
        worker.exchange.load_state_dict(state)
        worker.take_steps(random_updates(2, cluster.rank, 1))
        return state, copy

    state, copy = worlds[2](work)[0]
    assert all(torch.equal(state[name], copy[name]) for name in copy)


@overlaps
@few_examples
@given(world_size=world_sizes, seed=seeds, every=st.integers(1, 4), steps=st.integers(1, 9))
def test_the_common_weights_are_equal_on_all_workers_at_any_time(worlds, overlap, world_size, seed, every, steps):
    def work(cluster: Cluster) -> list[Tensor]:
        worker = ExchangeWorker(cluster, local_steps(every, overlap=overlap))
        seen = []
        for update in random_updates(seed, cluster.rank, steps):
            worker.take_steps([update], flush_last=False)
            seen.append(torch.cat([weights.flatten() for weights in worker.exchange.common_weights]))
        worker.take_steps([update])
        assert torch.equal(torch.cat([weights.flatten() for weights in worker.exchange.common_weights]), worker.weights)
        return seen

    first, *others = worlds[world_size](work)
    assert all(torch.equal(one, other) for each in others for one, other in zip(first, each, strict=True))


@overlaps
@few_examples
@given(world_size=world_sizes, every=st.integers(1, 4), requested=st.integers(0, 5))
def test_a_request_to_roll_back_reaches_all_workers_at_the_same_step(worlds, overlap, world_size, every, requested):
    def work(cluster: Cluster) -> list[bool]:
        worker = ExchangeWorker(cluster, local_steps(every, overlap=overlap))
        told = []
        for step in range(12):
            worker.all_reduce([None] * len(worker.parameters))
            stats = worker.exchange.synchronize(flush=False, rollback=cluster.rank == 1 and step == requested)
            told.append(stats is not None and stats.rollback_requested)
        return told

    first, *others = worlds[world_size](work)
    assert all(each == first for each in others)
    assert sum(first) == 1
    assert requested <= first.index(True) <= requested + max(every, 2 * overlap)
