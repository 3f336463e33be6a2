from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.distributed.step_stats import StepStats
from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer
from dragoman.settings import ExchangeSettings, OptimizerSettings
from dragoman.training.ema import EMA
from dragoman.training.optimizer import Optimizer
from dragoman.training.replica import Replica
from dragoman.training.snapshot import Snapshot

from ..small import tiny


def build(seed: int, *, averaged: bool) -> Replica:
    torch.manual_seed(seed)
    model = Transformer(Architecture(vocabulary=16, **tiny().model.model_dump()))
    settings = ExchangeSettings(method="local", every=1)
    alone = Cluster(0, 1, 1, torch.device("cpu"))
    exchange = choose_exchange.build(choose_exchange.from_settings(settings), settings, alone, list(model.parameters()))
    return Replica(model, Optimizer(model, OptimizerSettings()), EMA(model, 0.9) if averaged else None, exchange)


def take_step(trained: Replica, number: int) -> None:
    """Take a step with random gradients that depend on its number."""
    generator = torch.Generator().manual_seed(number)
    for parameter in trained.model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    trained.exchange.all_reduce(StepStats(torch.ones(2), 10, [0.0], [0.0]), 10)
    trained.optimizer.step(0.01)
    trained.state = replace(trained.state, step=number)
    trained.synchronize(flush=True, rollback=False)
    trained.update_average()


def tensors(snapshot: Snapshot) -> dict[str, Tensor]:
    return {f"{file}/{name}": tensor for file, part in snapshot.files().items() for name, tensor in part.items()}


def same(one: Snapshot, other: Snapshot) -> bool:
    left, right = tensors(one), tensors(other)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("averaged", [False, True])
def test_a_restored_replica_continues_like_the_original(averaged):
    whole, other = build(1, averaged=averaged), build(2, averaged=averaged)
    take_step(whole, 1)
    take_step(other, 5)
    other.restore(whole.snapshot())
    for each in (whole, other):
        take_step(each, 2)
    assert same(whole.snapshot(), other.snapshot())


@pytest.mark.parametrize("averaged", [False, True])
def test_a_snapshot_can_be_restored_more_than_once(averaged):
    trained = build(1, averaged=averaged)
    take_step(trained, 1)
    kept = trained.snapshot()
    outcomes = []
    for _ in range(2):
        trained.restore(kept)
        take_step(trained, 2)
        outcomes.append(trained.snapshot())
    assert same(outcomes[0], outcomes[1])
    assert not same(outcomes[0], kept)


def test_the_weights_of_a_snapshot_are_the_moving_average():
    trained = build(1, averaged=True)
    take_step(trained, 1)
    snapshot = trained.snapshot()
    name, weights = next(iter(snapshot.weights.items()))
    assert torch.equal(weights, trained.ema.weights[name])
    assert not torch.equal(weights, snapshot.trained[name])
