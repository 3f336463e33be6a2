import math

import pytest
import torch
from torch import nn

from dragoman.settings import OptimizerSettings
from dragoman.training.optimizer import EagerAdamW, Optimizer


class SmallModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(7, 6)
        self.inner = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)

    def loss(self) -> torch.Tensor:
        return self.norm(self.inner(self.embedding.weight)).pow(3).sum()


def take_steps(model: SmallModel, optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        model.zero_grad()
        model.loss().backward()
        optimizer.step(0.01)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_restored_optimizer_continues_bit_for_bit(algorithm):
    settings = OptimizerSettings(algorithm=algorithm, weight_decay=0.1)
    whole, half, rest = SmallModel(), SmallModel(), SmallModel()
    take_steps(whole, Optimizer(whole, settings), 6)
    first = Optimizer(half, settings)
    take_steps(half, first, 3)
    rest.load_state_dict(half.state_dict())
    second = Optimizer(rest, settings)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    take_steps(rest, second, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), rest.parameters(), strict=True))


def test_adamw_equals_torch_adamw():
    ours, theirs = SmallModel(), SmallModel()
    settings = OptimizerSettings(beta1=0.8, beta2=0.95, epsilon=1e-8)
    take_steps(ours, Optimizer(ours, settings), 5)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(5):
        theirs.zero_grad()
        theirs.loss().backward()
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_muon_updates_the_matrices_and_adamw_the_rest():
    model = SmallModel()
    optimizer = Optimizer(model, OptimizerSettings(algorithm="muon"))
    take_steps(model, optimizer, 1)
    quantities: dict[str, set[str]] = {}
    for key in optimizer.state_dict():
        name, _, quantity = key.rpartition("/")
        quantities.setdefault(name, set()).add(quantity)
    assert quantities["inner.weight"] == {"momentum_buffer"}
    assert all({"exp_avg", "exp_avg_sq"} <= found for name, found in quantities.items() if name != "inner.weight")
    assert set(quantities) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_step_with_an_unread_loss_is_clipped_and_skipped_like_any_other(algorithm):
    settings = OptimizerSettings(algorithm=algorithm, weight_decay=0.1)
    unread, read = SmallModel(), SmallModel()
    optimizers = Optimizer(unread, settings), Optimizer(read, settings)
    for value in (1.0, math.nan, 2.0):
        for model in (unread, read):
            model.zero_grad()
            (model.loss() * value).backward()
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in unread.parameters()])
        optimizers[0].clip_and_step_if_finite(0.01, torch.tensor(value), norm, clip_norm=0.5)
        if math.isfinite(value):
            torch.nn.utils.clip_grad_norm_(read.parameters(), 0.5)
            optimizers[1].step(0.01)
        for a, b in zip(unread.parameters(), read.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_skipped_step_does_not_affect_later_ones(algorithm):
    model = nn.Linear(8, 8)
    optimizer = Optimizer(model, OptimizerSettings(algorithm=algorithm))
    for value, loss in ((math.nan, math.nan), (1.0, None)):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        before = model.weight.detach().clone()
        if loss is None:
            optimizer.step(0.01)
        else:
            optimizer.clip_and_step_if_finite(0.01, torch.tensor(loss), torch.tensor(1.0), 0.5)
            assert torch.equal(model.weight, before)
    assert not torch.equal(model.weight, before)


def test_weight_decay_applies_to_matrices_only():
    model = SmallModel()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = Optimizer(model, OptimizerSettings(weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(0.1)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {"inner.weight"}


@pytest.mark.parametrize("fused", [False, True])
def test_adamw_takes_the_steps_of_torch_bit_for_bit(fused):
    def train(algorithm: type[torch.optim.AdamW]) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        weights = [nn.Parameter(torch.randn(4, 3, generator=generator)) for _ in range(2)]
        groups = [{"params": weights[:1], "weight_decay": 0.0}, {"params": weights[1:], "weight_decay": 0.1}]
        optimizer = algorithm(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-9, fused=fused)
        for _ in range(3):
            sum(weight.sin().sum() for weight in weights).backward()
            optimizer.step()
        return weights

    for ours, theirs in zip(train(EagerAdamW), train(torch.optim.AdamW), strict=True):
        assert torch.equal(ours, theirs)
