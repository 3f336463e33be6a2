"""The noise scale, estimated from gradients with a known one."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events import StepDone
from dragoman.insight.answers import answer_all
from dragoman.insight.gradient_noise import estimate_gradient_noise
from dragoman.insight.run_history import build_history

from .synthetic_runs import synthetic_run

PARAMETERS, BATCH_TOKENS = 400, 1000


def noisy_norms(random: Random, shares: list[float], scale_tokens: float) -> tuple[float, float]:
    """Global gradient norm, and mean squared norm of the workers' gradients, which are ones plus noise."""
    tokens = [share * BATCH_TOKENS for share in shares]
    gradients = [[1 + random.gauss(0, (scale_tokens / count) ** 0.5) for _ in range(PARAMETERS)] for count in tokens]
    mean = [
        sum(share * value for share, value in zip(shares, row, strict=True)) for row in zip(*gradients, strict=True)
    ]
    worker_norm_sq = sum(
        share * sum(x * x for x in gradient) for share, gradient in zip(shares, gradients, strict=True)
    )
    return sum(x * x for x in mean) ** 0.5, worker_norm_sq


def noisy_steps(shares: list[float], scale_tokens: float, count: int = 20) -> list[StepDone]:
    random = Random(3)
    example = next(event for event in synthetic_run(1, world=len(shares)) if isinstance(event, StepDone))
    norms = [noisy_norms(random, shares, scale_tokens) for _ in range(count)]
    return [
        replace(example, target_tokens=BATCH_TOKENS, gradient_norm=norm, worker_gradient_norm_sq=worker_norm_sq)
        for norm, worker_norm_sq in norms
    ]


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.75, 0.25], [0.2, 0.3, 0.5]])
@pytest.mark.parametrize("scale_tokens", [100.0, 1000.0, 10_000.0])
def test_the_scale_is_found_whatever_the_shares(shares, scale_tokens):
    noise = estimate_gradient_noise(noisy_steps(shares, scale_tokens))
    assert noise is not None
    assert noise.scale_tokens == pytest.approx(scale_tokens, rel=0.3)


@pytest.mark.parametrize(
    ("scale_tokens", "advice"),
    [(100.0, "the batch is large"), (1000.0, "the batch size is suitable"), (20_000.0, "the batch is small")],
)
def test_the_batch_size_is_judged_by_the_noise_scale(scale_tokens, advice):
    noise = estimate_gradient_noise(noisy_steps([0.5, 0.5], scale_tokens))
    assert noise is not None
    assert advice in noise.describe()


def test_too_few_measurements_give_no_estimate():
    assert estimate_gradient_noise(noisy_steps([0.5, 0.5], 1000.0, count=9)) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=10, max_size=20))
def test_an_estimate_is_positive_whatever_was_measured(norms):
    example = noisy_steps([0.5, 0.5], 1000.0, count=1)[0]
    noise = estimate_gradient_noise(
        [replace(example, gradient_norm=norm, worker_gradient_norm_sq=worker_norm_sq) for norm, worker_norm_sq in norms]
    )
    assert noise is None or noise.scale_tokens > 0


def test_the_answer_about_steps_includes_the_noise_scale():
    recorded = synthetic_run(
        400, step=lambda done: replace(done, worker_gradient_norm_sq=1.5 if done.step % 8 == 0 else 0.0)
    )
    answer = next(answer for answer in answer_all(build_history(recorded)) if answer.key == "step")
    assert any("noise scale" in line for line in answer.evidence)
