"""Simulated workers of the benchmark of exchange quality: they must do what real ones do."""

import pytest
import torch
from benchmarks.exchange_quality import Cell
from benchmarks.simulated_workers import SimulatedWorld
from torch import nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.step_stats import StepStats
from dragoman.recipe import resolve

from ..distributed.thread_workers import ThreadWorkers

VALUES, STEPS = 3000, 9


def train_randomly(cluster: Cluster, wire_format: str, overlap: int) -> tuple[list[float], int]:
    """Local steps with random updates. Returns the weights at the end, and the bytes sent for them."""
    before, generator = cluster.bytes_sent, torch.Generator().manual_seed(cluster.rank)
    weights, zeros = nn.Parameter(torch.zeros(VALUES)), [0.0] * cluster.world_size
    exchange = LocalSteps(cluster, [weights], 4, wire_format, 0.7, 0.9, overlap=overlap)
    for step in range(STEPS):
        exchange.all_reduce(StepStats(torch.zeros(2), 10, zeros, zeros), 20)
        with torch.no_grad():
            weights += torch.randn(VALUES, generator=generator)
        exchange.synchronize(flush=step == STEPS - 1)
    return weights.tolist(), cluster.bytes_sent - before


@pytest.mark.parametrize(("wire_format", "overlap"), [("int8", 2), ("int2", 1), ("int4", 0)])
def test_simulated_workers_get_the_weights_of_real_ones_and_send_as_many_bytes(wire_format, overlap):
    with ThreadWorkers("a", "b") as workers:
        real = workers(lambda cluster: train_randomly(cluster, wire_format, overlap))
    device = torch.device("cpu")
    simulated = SimulatedWorld(2).run(lambda cluster: train_randomly(cluster, wire_format, overlap), device)
    assert simulated == real
    assert simulated[0] == simulated[1]


def test_a_failing_simulated_worker_ends_the_others():
    def work(cluster: Cluster) -> None:
        if cluster.rank == 1:
            raise ValueError("planted")
        cluster.all_reduce(torch.zeros(1))

    with pytest.raises((ValueError, RuntimeError)):
        SimulatedWorld(3).run(work, torch.device("cpu"))


@pytest.mark.parametrize("text", ["sync", "2/128/int4", "8/512/int2/0.7/0.9"])
def test_a_cell_is_a_run_with_the_settings_that_its_name_gives(text):
    exchange = resolve("tiny", Cell.parse(text).overrides()).settings.exchange
    assert exchange.method == ("plain" if text == "sync" else "local")
    if text != "sync":
        assert f"{exchange.every}/{exchange.wire_format}" in text
    assert exchange.outer_momentum == (0.9 if text.endswith("0.9") else 0)
