"""Simulated workers of the benchmark of exchange quality: they must do what real ones do."""

from copy import deepcopy

import pytest
import torch
from benchmarks.exchange_quality import Cell
from benchmarks.simulated_workers import SharedTrainStep, SimulatedWorld
from torch import nn

from dragoman.batching.data_loader import DataLoader, Position
from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.precision import Precision
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.training.train_step import TrainStep

from ..distributed.thread_workers import ThreadWorkers
from ..small import TINY

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


@pytest.mark.parametrize(("wire_format", "overlap"), [("int8", 2), ("int2", 1), ("int4", 3)])
def test_simulated_workers_get_the_weights_of_real_ones_and_send_as_many_bytes(wire_format, overlap):
    with ThreadWorkers("a", "b") as workers:
        real = workers(lambda cluster: train_randomly(cluster, wire_format, overlap))
    device = torch.device("cpu")
    simulated = SimulatedWorld(2).run(lambda cluster: train_randomly(cluster, wire_format, overlap), device)
    assert simulated == real
    assert simulated[0] == simulated[1]


def test_a_shared_step_computes_the_gradients_of_each_worker_as_its_own_step_would(data: DataSet):
    settings = resolve("tiny", [*TINY, "model.dropout=0.1"]).settings
    architecture = Architecture(vocabulary=data.tokenizer.padded_vocab_size, **settings.model.model_dump())
    loader = DataLoader(data.pairs("train"), data.tokenizer, settings.batch.tokens, 1, settings.batch.tokens)
    device, training = torch.device("cpu"), settings.training
    precision = Precision.choose(settings, device)

    def make_step(model: Transformer) -> TrainStep:
        return TrainStep(model, loader, precision, training, device, lambda _: None)

    batches = [next(loader.batches(Position(), [1.0, 1.0], rank)) for rank in range(2)]
    shared_model, *models = (Transformer(architecture) for _ in range(3))
    shared = SharedTrainStep(shared_model, make_step(shared_model))
    shared.warm_up(batches[0])
    for step in (1, 2):
        for model, batch in zip(models, batches, strict=True):
            losses = shared(model, batch, step).losses
            own = deepcopy(model)
            own.zero_grad()
            assert torch.equal(make_step(own)(batch, step).losses, losses)
            assert all(
                torch.equal(one.grad, other.grad)
                for one, other in zip(own.parameters(), model.parameters(), strict=True)
            )


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
