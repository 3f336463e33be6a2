"""Dropout: its rate, its independence, its gradients, and masks that belong to the tokens.

Shapes: T tokens, n features, S sentences, H heads, L tokens of the longest sentence.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.model.dropout import Dropout, draw_seeds, keep_mask, keep_scale, keep_weights_mask, seed_dropout

CPU = torch.device("cpu")
rates = pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])


def seeds_of(layers: int = 1, run_seed: int = 1, step: int = 1) -> Tensor:
    seeds = seed_dropout(nn.ModuleList(Dropout(0.1) for _ in range(layers)), CPU)
    draw_seeds(seeds, run_seed, step)
    return seeds


def seeded(rate: float) -> Dropout:
    drop = Dropout(rate)
    draw_seeds(seed_dropout(drop, CPU), 1, 1)
    return drop


def places_of(tokens: int) -> Tensor:
    return torch.arange(tokens, dtype=torch.int32)


def mask_of(tokens: int, features: int, rate: float, seed: Tensor) -> Tensor:
    return keep_mask(torch.empty(tokens, features), places_of(tokens), seed, rate)


def correlations(masks: Tensor, rate: float) -> Tensor:
    """[k, m] masks of k variables -> the correlations of all pairs, in standard deviations of independent ones."""
    normalized = (masks - (1 - rate)) / math.sqrt(rate * (1 - rate))
    scores = normalized @ normalized.T / math.sqrt(masks.shape[1])
    return scores[torch.triu(torch.ones_like(scores), 1) > 0]


def assert_independent(masks: Tensor, rate: float) -> None:
    scores = correlations(masks, rate)
    assert scores.abs().max() < math.sqrt(2 * math.log(len(scores))) + 2  # The largest of many normal values.
    assert scores.square().mean() == pytest.approx(1, abs=4 * math.sqrt(2 / len(scores)) + 0.01)


@rates
def test_the_rate_is_exact_for_every_feature_and_every_token(rate: float) -> None:
    mask = mask_of(20_000, 200, rate, seeds_of()[0])
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    for counts, draws in ((mask.sum(0), 20_000), (mask.sum(1), 200)):
        deviations = (counts - draws * (1 - rate)) / math.sqrt(draws * rate * (1 - rate))
        assert deviations.square().mean() == pytest.approx(1, abs=5 * math.sqrt(2 / len(counts)))  # chi-square
    assert mask.mean() * keep_scale(rate) == pytest.approx(1, abs=5 * math.sqrt(rate / (1 - rate) / mask.numel()))


@rates
def test_masks_of_features_and_of_tokens_are_independent(rate: float) -> None:
    seed = seeds_of()[0]
    assert_independent(mask_of(50_000, 128, rate, seed).T, rate)
    assert_independent(mask_of(128, 50_000, rate, seed), rate)


@rates
def test_masks_of_steps_layers_and_runs_are_independent(rate: float) -> None:
    by_run_and_step = [seeds_of(6, run_seed, step) for run_seed in (1, 2, 10**12) for step in (1, 2, 3, 50_000)]
    masks = [mask_of(500, 200, rate, seed).flatten() for seeds in by_run_and_step for seed in seeds]
    assert_independent(torch.stack(masks), rate)


@rates
def test_masks_of_attention_weights_are_independent(rate: float) -> None:
    places, seed = places_of(300).view(10, 30), seeds_of()[0]
    mask = keep_weights_mask(torch.empty(10, 8, 30, 2000), places, seed, rate)
    assert mask.mean().item() == pytest.approx(1 - rate, abs=0.002)
    assert_independent(mask[:2].reshape(-1, 2000), rate)  # queries and heads
    assert_independent(mask[..., :100].reshape(-1, 100).T, rate)  # keys


@given(
    places=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    features=st.integers(1, 9),
    run_seed=st.integers(0, 10**12),
    step=st.integers(1, 10**9),
)
def test_the_mask_of_a_token_depends_on_its_place_alone(
    places: list[int], features: int, run_seed: int, step: int
) -> None:
    seed = seeds_of(1, run_seed, step)[0]
    packed = torch.tensor(places, dtype=torch.int32)
    together = keep_mask(torch.empty(len(places), features), packed, seed, 0.5)
    for row, place in zip(together, packed.split(1), strict=True):
        assert torch.equal(keep_mask(torch.empty(1, features), place, seed, 0.5)[0], row)
        wider = keep_mask(torch.empty(1, features + 3), place, seed, 0.5)[0]
        assert torch.equal(wider[:features], row)


@given(
    places=st.lists(st.integers(0, 2**28), min_size=1, max_size=6),
    keys=st.integers(1, 9),
    padding=st.integers(0, 4),
)
def test_the_mask_of_an_attention_weight_does_not_depend_on_padding(places: list[int], keys: int, padding: int) -> None:
    seed, row = seeds_of()[0], torch.tensor([places], dtype=torch.int32)
    padded = row.new_zeros(3, len(places) + padding)
    padded[1, : len(places)] = row
    expected = keep_weights_mask(torch.empty(1, 4, len(places), keys), row, seed, 0.5)[0]
    found = keep_weights_mask(torch.empty(3, 4, len(places) + padding, keys + padding), padded, seed, 0.5)[1]
    assert torch.equal(found[:, : len(places), :keys], expected)


@pytest.mark.parametrize("features", [8, 7])
def test_a_compiled_mask_has_the_same_bits(features: int) -> None:
    compiled = torch.compile(keep_mask, backend="aot_eager", fullgraph=True)
    like, places, seed = torch.empty(50, features), places_of(50), seeds_of()[0]
    for rate in (0.1, 0.6):
        assert torch.equal(compiled(like, places, seed, rate), keep_mask(like, places, seed, rate))


def test_every_worker_draws_the_same_seeds_and_no_two_layers_share_them() -> None:
    seeds = seeds_of(100, run_seed=5, step=7)
    assert torch.equal(seeds_of(100, run_seed=5, step=7), seeds)
    others = [seeds_of(100, run_seed=5, step=8), seeds_of(100, run_seed=6, step=7)]
    assert len(set(map(tuple, torch.cat([seeds, *others]).tolist()))) == 300


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_expectation(rate: float) -> None:
    drop, x, places = seeded(rate), torch.ones(2000, 100), places_of(2000)
    assert drop(x, places).mean().item() == pytest.approx(1, abs=0.01)
    assert drop.add(x, x, places).mean().item() == pytest.approx(2, abs=0.01)
    assert drop.relu(x, places).mean().item() == pytest.approx(1, abs=0.01)


def test_gradients_pass_only_where_dropout_keeps_elements() -> None:
    residual, x = torch.zeros(100, 10, requires_grad=True), torch.ones(100, 10, requires_grad=True)
    y = seeded(0.25).add(residual, x, places_of(100))
    y.sum().backward()
    assert torch.equal(residual.grad, torch.ones(100, 10))
    torch.testing.assert_close(x.grad, y.detach())


def test_relu_with_dropout_has_the_gradient_of_the_formula() -> None:
    torch.manual_seed(0)
    drop, places = seeded(0.3), places_of(50)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    plain = drop(x.relu(), places)
    assert torch.equal(drop.relu(x, places), plain)
    upstream = torch.randn_like(plain)
    torch.testing.assert_close(
        torch.autograd.grad(drop.relu(x, places), x, upstream), torch.autograd.grad(plain, x, upstream)
    )
    assert (plain != 0).any()
    assert torch.equal(drop.eval().relu(x.detach().clone(), None), x.relu())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_residual_addition_keeps_the_type_of_the_stream(kind: torch.dtype) -> None:
    drop, residual, x = seeded(0.5), torch.randn(20, 6), torch.randn(20, 6).to(kind)
    total = drop.add(residual, x, places_of(20))
    assert total.dtype == torch.float32
    torch.testing.assert_close(total, residual + drop(x, places_of(20)), atol=1e-2, rtol=1e-2)


def test_there_is_no_dropout_outside_of_training() -> None:
    drop, x = seeded(0.5).eval(), torch.randn(4, 6)
    assert drop(x, None) is x
    assert torch.equal(drop.add(x, x, None), 2 * x)


def test_all_pairs_of_rows_are_compared() -> None:
    """The test of independence notices two equal masks among many, and a common bias."""
    masks = torch.stack([mask_of(500, 200, 0.1, seed).flatten() for seed in seeds_of(20)])
    for broken in (torch.cat([masks, masks[3:4]]), masks * (mask_of(500, 200, 0.1, seeds_of(21)[20]).flatten())):
        with pytest.raises(AssertionError):
            assert_independent(broken, 0.1)
    assert len(correlations(masks, 0.1)) == len(list(itertools.combinations(range(20), 2)))
