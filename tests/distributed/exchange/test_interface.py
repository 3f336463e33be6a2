"""Properties of all exchange methods."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.delta_sketch import SKETCH_SIZE
from dragoman.distributed.exchange.quantized_blocks import BLOCK, message_bytes
from dragoman.distributed.step_stats import StepStats, packed_size

from .exchange_worker import (
    BATCH_TOKENS,
    METHODS,
    SHAPES,
    ExchangeWorker,
    few_examples,
    random_gradients,
    world_sizes,
)


@pytest.mark.parametrize("method", METHODS)
@few_examples
@given(data=st.data(), world_size=world_sizes)
def test_stats_are_summed_exactly(worlds, method, data, world_size):
    size = packed_size(world_size)
    counts = st.lists(st.integers(0, 2**21), min_size=size, max_size=size)
    values = [data.draw(counts) for _ in range(world_size)]

    def work(cluster: Cluster) -> StepStats | None:
        worker = ExchangeWorker(cluster, METHODS[method])
        packed = torch.tensor(values[cluster.rank], dtype=torch.float32)
        worker.all_reduce(random_gradients(3, cluster.rank), StepStats.unpack(packed))
        return worker.exchange.synchronize(flush=True)

    for summed in worlds[world_size](work):
        assert summed is not None
        assert summed.pack().tolist() == [sum(column) for column in zip(*values, strict=True)]


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_without_tokens_adds_nothing(worlds, method):
    def work(cluster: Cluster) -> tuple[list[Tensor], StepStats | None, Tensor]:
        worker = ExchangeWorker(cluster, METHODS[method])
        idle = cluster.rank == 1
        gradients = [None] * len(SHAPES) if idle else random_gradients(1, 0)
        result = worker.all_reduce(gradients, worker.stats(tokens=0.0 if idle else 100.0))
        return result, worker.exchange.synchronize(flush=True), worker.weights

    (_, stats, weights), (idle_gradients, idle_stats, idle_weights) = worlds[2](work)
    assert stats is not None
    assert stats.pack().tolist() == idle_stats.pack().tolist()
    assert all(bool(gradient.isfinite().all()) for gradient in idle_gradients)
    assert torch.equal(weights, idle_weights)
    if method == "plain":
        expected = random_gradients(1, 0)
        assert all(torch.equal(actual, each) for actual, each in zip(idle_gradients, expected, strict=True))


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize(
    ("method", "all_reduce_bytes", "bits"),
    [
        ("plain", 4 * 2048, 0),
        ("bf16", 2 * 2048, 0),
        ("powersgd", 4 * 2 * (64 + 32), 0),
        ("local, bf16", 2 * 2048 + 4 * SKETCH_SIZE, 0),
        ("local, int8", 4 * SKETCH_SIZE, 8),
        ("local, int4", 4 * SKETCH_SIZE, 4),
        ("local, int2", 4 * SKETCH_SIZE, 2),
    ],
)
def test_all_sent_bytes_are_counted(worlds, method, world_size, all_reduce_bytes, bits):
    """A ring all-reduce sends each element almost twice. So does a quantized mean: each worker averages a part.

    Local steps add a sketch of each worker's delta to the stats.
    """

    def work(cluster: Cluster) -> int:
        worker = ExchangeWorker(cluster, METHODS[method], [(64, 32)])
        before = cluster.bytes_sent
        worker.all_reduce(random_gradients(1, cluster.rank, [(64, 32)]))
        worker.exchange.synchronize(flush=True)
        return cluster.bytes_sent - before

    ring_bytes = all_reduce_bytes + 4 * packed_size(world_size)
    part = -(-2048 // (world_size * BLOCK)) * BLOCK
    quantized_bytes = message_bytes(part, bits) if bits else 0
    expected = 2 * (world_size - 1) / world_size * ring_bytes + 2 * (world_size - 1) * quantized_bytes
    assert worlds[world_size](work) == pytest.approx([expected] * world_size, abs=3)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_worker_sends_nothing_and_keeps_its_gradient(method):
    alone = Cluster(0, 1, 1, torch.device("cpu"))
    worker = ExchangeWorker(alone, METHODS[method])
    gradients = random_gradients(1, 0)
    result = worker.all_reduce(gradients, worker.stats(tokens=BATCH_TOKENS))
    assert all(torch.equal(actual, expected) for actual, expected in zip(result, gradients, strict=True))
    assert alone.bytes_sent == 0
    alone.close()
