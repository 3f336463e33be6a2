import pytest
import torch
from torch import nn

from dragoman.training.ema import EMA


def test_the_average_moves_towards_the_weights_by_the_decay():
    model = nn.Linear(6, 5)
    start = model.weight.detach().clone()
    ema = EMA(model, 0.9)
    with torch.no_grad():
        model.weight.add_(1.0)
    ema.update(1000, list(model.parameters()))
    torch.testing.assert_close(ema.weights["weight"], start + 0.1)


@pytest.mark.parametrize(("step", "decay"), [(1, 2 / 11), (10, 11 / 20), (100_000, 0.99)])
def test_the_decay_is_lower_in_the_first_steps(step, decay):
    model = nn.Linear(1, 1, bias=False)
    ema = EMA(model, 0.99)
    ema.weights["weight"].fill_(1.0)
    with torch.no_grad():
        model.weight.zero_()
    ema.update(step, list(model.parameters()))
    assert ema.weights["weight"].item() == pytest.approx(decay)


def test_two_swaps_change_nothing_bit_for_bit():
    model = nn.Linear(6, 5)
    ema = EMA(model, 0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    trained, average = (
        {name: tensor.clone() for name, tensor in state.items()} for state in (model.state_dict(), ema.weights)
    )
    ema.swap()
    assert all(torch.equal(tensor, average[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(tensor, trained[name]) for name, tensor in ema.weights.items())
    ema.swap()
    assert all(torch.equal(tensor, trained[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(tensor, average[name]) for name, tensor in ema.weights.items())
