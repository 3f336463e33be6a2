"""Dropout: its rate, its independence, its gradients."""

import itertools

import pytest
import torch

from dragoman.model.dropout import Dropout, dropout, hashed_mask, keep_mask, seed_dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_rate_in_every_lane_and_the_expectation(rate: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(400_003)
    kept = keep_mask(x, rate)
    for lane in range(4):  # one random 64-bit word decides four elements
        assert kept[lane::4].float().mean().item() == pytest.approx(1 - rate, abs=0.01)
    for first, second in itertools.pairwise(kept[: 4 * 100_000].view(-1, 4).float().unbind(1)):
        assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.02
    assert dropout(x, rate).mean().item() == pytest.approx(1, abs=0.02)
    assert Dropout(rate).add(x, x).mean().item() == pytest.approx(2, abs=0.02)


def test_dropout_follows_the_seed() -> None:
    x = torch.randn(7, 5)
    torch.manual_seed(3)
    first = dropout(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(first, dropout(x, 0.3))


def test_gradients_pass_only_where_dropout_keeps_elements() -> None:
    residual, x = torch.zeros(1000, requires_grad=True), torch.ones(1000, requires_grad=True)
    y = Dropout(0.25).add(residual, x)
    y.sum().backward()
    assert torch.equal(residual.grad, torch.ones(1000))
    torch.testing.assert_close(x.grad, y.detach())


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_hashed_dropout_keeps_its_rate_and_is_independent_between_elements_and_layers(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.empty(1000, 300)
    seeds = torch.empty(6, 2, dtype=torch.int32).random_(-(2**31), 2**31)
    masks = [hashed_mask(x, rate, seed).float() for seed in seeds]
    for mask in masks:
        assert mask.mean().item() == pytest.approx(1 - rate, abs=0.005)
        for one, other in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]), (mask[:, 2:], mask[:, :-2])):
            assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 0.01
    for one, other in itertools.combinations(masks, 2):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 0.01
    assert torch.equal(hashed_mask(x, rate, seeds[0]).float(), masks[0])


def test_seeded_relu_dropout_has_the_gradient_of_the_formula() -> None:
    torch.manual_seed(0)
    drop = Dropout(0.3)
    seed_dropout(drop, torch.device("cpu")).random_(-(2**31), 2**31)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    plain = drop(x.relu())
    assert torch.equal(drop.relu(x), plain)
    upstream = torch.randn_like(plain)
    torch.testing.assert_close(torch.autograd.grad(drop.relu(x), x, upstream), torch.autograd.grad(plain, x, upstream))
    assert (plain != 0).any()
    assert torch.equal(drop.eval().relu(x.clone()), x.relu())
