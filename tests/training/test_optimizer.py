import math

import pytest
import torch
from torch import nn

from dragoman.settings import OptimizerSettings
from dragoman.training import muon
from dragoman.training.ema import EMA
from dragoman.training.muon import Muon
from dragoman.training.optimizer import Optimizer


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(7, 6)
        self.inner = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)

    def loss(self) -> torch.Tensor:
        return self.norm(self.inner(self.embedding.weight)).pow(3).sum()


def descend(model: Toy, updater: Optimizer, steps: int) -> None:
    for _ in range(steps):
        model.zero_grad()
        model.loss().backward()
        updater.step(0.01)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_state_that_was_saved_goes_on_bit_for_bit(algorithm):
    settings = OptimizerSettings(algorithm=algorithm, weight_decay=0.1)
    whole, half, rest = Toy(), Toy(), Toy()
    descend(whole, Optimizer(whole, settings), 6)
    first = Optimizer(half, settings)
    descend(half, first, 3)
    rest.load_state_dict(half.state_dict())
    second = Optimizer(rest, settings)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    descend(rest, second, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), rest.parameters(), strict=True))


def test_adamw_is_torchs():
    ours, theirs = Toy(), Toy()
    settings = OptimizerSettings(beta1=0.8, beta2=0.95, epsilon=1e-8)
    descend(ours, Optimizer(ours, settings), 5)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(5):
        theirs.zero_grad()
        theirs.loss().backward()
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_muon_takes_the_matrices_and_adamw_the_rest():
    model = Toy()
    updater = Optimizer(model, OptimizerSettings(algorithm="muon"))
    descend(model, updater, 1)
    quantities: dict[str, set[str]] = {}
    for key in updater.state_dict():
        name, _, quantity = key.rpartition("/")
        quantities.setdefault(name, set()).add(quantity)
    assert quantities["inner.weight"] == {"momentum_buffer"}
    assert all({"exp_avg", "exp_avg_sq"} <= found for name, found in quantities.items() if name != "inner.weight")
    assert set(quantities) == {name for name, _ in model.named_parameters()}


def test_muon_is_torchs_where_matrices_stand_alone():
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in ((24, 16), (16, 24), (24, 16), (8, 8))]
    ours, theirs = ([nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = (
        Muon(ours, [1] * len(ours), weight_decay=0.1),
        torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(4):
        gradients = [torch.randn_like(matrix) for matrix in start]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.param_groups[0]["lr"] = 0.02
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    for a, b, before in zip(ours, theirs, start, strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=0)  # bfloat16 rounds differently in batches
        assert (a - before).abs().max() > 0.01


@pytest.mark.parametrize(("has_units", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_muon_multiplies_bfloat16_only_where_the_hardware_does(monkeypatch, has_units, dtype):
    monkeypatch.setattr(muon, "has_fast_bf16", lambda device: has_units)
    torch.manual_seed(0)
    for shape in ((2, 48, 16), (2, 16, 48)):
        found = muon.orthogonal(torch.randn(shape))
        assert found.dtype == dtype
        assert found.shape == shape
        singular_values = torch.linalg.svdvals(found.float())
        assert 0.5 < singular_values.min() <= singular_values.max() < 1.5


def test_muon_takes_each_matrix_of_a_fused_projection_by_itself():
    torch.manual_seed(0)
    start, gradient = torch.randn(3, 8, 8), torch.randn(3, 8, 8)
    fused = [nn.Parameter(start.flatten(0, 1).clone())]
    apart = [nn.Parameter(matrix.clone()) for matrix in start]
    for parameters, parts, gradients in ((fused, [3], [gradient.flatten(0, 1)]), (apart, [1] * 3, gradient.unbind())):
        optimizer = Muon(parameters, parts, weight_decay=0.0)
        optimizer.param_groups[0]["lr"] = 0.1
        for parameter, each in zip(parameters, gradients, strict=True):
            parameter.grad = each.clone()
        optimizer.step()
    torch.testing.assert_close(fused[0].detach(), torch.cat([parameter.detach() for parameter in apart]))


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_step_that_was_not_read_is_clipped_and_skipped_as_one_that_was(algorithm):
    settings = OptimizerSettings(algorithm=algorithm, weight_decay=0.1)
    unread, read = Toy(), Toy()
    updaters = Optimizer(unread, settings), Optimizer(read, settings)
    for value in (1.0, math.nan, 2.0):
        for model in (unread, read):
            model.zero_grad()
            (model.loss() * value).backward()
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in unread.parameters()])
        updaters[0].clip_and_step_if_finite(0.01, torch.tensor(value), norm, clip_norm=0.5)
        if math.isfinite(value):
            torch.nn.utils.clip_grad_norm_(read.parameters(), 0.5)
            updaters[1].step(0.01)
        for a, b in zip(unread.parameters(), read.parameters(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_step_that_is_read_forgets_what_was_not_finite_before(algorithm):
    model = nn.Linear(8, 8)
    updater = Optimizer(model, OptimizerSettings(algorithm=algorithm))
    for value, loss in ((math.nan, math.nan), (1.0, None)):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        before = model.weight.detach().clone()
        if loss is None:
            updater.step(0.01)
        else:
            updater.clip_and_step_if_finite(0.01, torch.tensor(loss), torch.tensor(1.0), 0.5)
            assert torch.equal(model.weight, before)
    assert not torch.equal(model.weight, before)


def test_only_matrices_decay():
    model = Toy()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    updater = Optimizer(model, OptimizerSettings(weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    updater.step(0.1)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {"inner.weight"}


def test_a_running_average_lags_behind_and_swaps_in_and_out():
    model = Toy()
    start = model.inner.weight.detach().clone()
    average = EMA(model, 0.9)
    with torch.no_grad():
        model.inner.weight.add_(1.0)
    average.update(step=1000)
    torch.testing.assert_close(average.weights["inner.weight"], start + 0.1)
    average.swap()
    torch.testing.assert_close(model.inner.weight.detach(), start + 0.1)
    average.swap()
    torch.testing.assert_close(model.inner.weight.detach(), start + 1.0)
