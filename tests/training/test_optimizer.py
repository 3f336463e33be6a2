import pytest
import torch
from torch import nn

from dragoman.config import Optimizer
from dragoman.training.optimizer import RunningAverage, Updater


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(7, 6)
        self.inner = nn.Linear(6, 5)
        self.norm = nn.LayerNorm(5)

    def loss(self) -> torch.Tensor:
        return self.norm(self.inner(self.embedding.weight)).pow(3).sum()


def descend(model: Toy, updater: Updater, steps: int) -> None:
    for _ in range(steps):
        model.zero_grad()
        model.loss().backward()
        updater.step(0.01)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_state_that_was_saved_goes_on_bit_for_bit(algorithm):
    settings = Optimizer(algorithm=algorithm, weight_decay=0.1)
    whole, half, rest = Toy(), Toy(), Toy()
    descend(whole, Updater(whole, settings), 6)
    first = Updater(half, settings)
    descend(half, first, 3)
    rest.load_state_dict(half.state_dict())
    second = Updater(rest, settings)
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    descend(rest, second, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), rest.parameters(), strict=True))


def test_adamw_is_torchs():
    ours, theirs = Toy(), Toy()
    settings = Optimizer(beta1=0.8, beta2=0.95, epsilon=1e-8)
    descend(ours, Updater(ours, settings), 5)
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-8, weight_decay=0)
    for _ in range(5):
        theirs.zero_grad()
        theirs.loss().backward()
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_muon_takes_the_matrices_and_adamw_the_rest():
    model = Toy()
    updater = Updater(model, Optimizer(algorithm="muon"))
    descend(model, updater, 1)
    quantities: dict[str, set[str]] = {}
    for key in updater.state():
        name, _, quantity = key.rpartition("/")
        quantities.setdefault(name, set()).add(quantity)
    assert quantities["inner.weight"] == {"momentum_buffer"}
    assert all({"exp_avg", "exp_avg_sq"} <= found for name, found in quantities.items() if name != "inner.weight")
    assert set(quantities) == {name for name, _ in model.named_parameters()}


def test_only_matrices_decay():
    model = Toy()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    updater = Updater(model, Optimizer(weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    updater.step(0.1)
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == {"inner.weight"}


def test_a_running_average_lags_behind_and_swaps_in_and_out():
    model = Toy()
    start = model.inner.weight.detach().clone()
    average = RunningAverage(model, 0.9)
    with torch.no_grad():
        model.inner.weight.add_(1.0)
    average.update(step=1000)
    torch.testing.assert_close(average.weights["inner.weight"], start + 0.1)
    average.swap()
    torch.testing.assert_close(model.inner.weight.detach(), start + 0.1)
    average.swap()
    torch.testing.assert_close(model.inner.weight.detach(), start + 1.0)
