"""The noise scale, found in gradients that were made with a known one."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events import StepDone
from dragoman.insight.answers import answer_all
from dragoman.insight.gradient_noise import gradient_noise
from dragoman.insight.run_history import tell

from .runs import made_run

SIZE, BATCH = 400, 1000


def noisy_step(random: Random, shares: list[float], scale: float) -> tuple[float, float]:
    """Norm and spread of one step, whose workers see a gradient of ones with noise of `scale` tokens."""
    tokens = [share * BATCH for share in shares]
    gradients = [[1 + random.gauss(0, (scale / count) ** 0.5) for _ in range(SIZE)] for count in tokens]
    mean = [
        sum(share * value for share, value in zip(shares, row, strict=True)) for row in zip(*gradients, strict=True)
    ]
    spread = sum(share * sum(x * x for x in gradient) for share, gradient in zip(shares, gradients, strict=True))
    return sum(x * x for x in mean) ** 0.5, spread


def made_steps(shares: list[float], scale: float, count: int = 20) -> list[StepDone]:
    random = Random(3)
    example = next(event for event in made_run(1, world=len(shares)) if isinstance(event, StepDone))
    made = [noisy_step(random, shares, scale) for _ in range(count)]
    return [
        replace(example, target_tokens=BATCH, gradient_norm=norm, worker_gradient_norm_sq=spread)
        for norm, spread in made
    ]


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.75, 0.25], [0.2, 0.3, 0.5]])
@pytest.mark.parametrize("scale", [100.0, 1000.0, 10_000.0])
def test_the_scale_that_gradients_were_made_with_is_found_whatever_the_shares(shares, scale):
    noise = gradient_noise(made_steps(shares, scale))
    assert noise is not None
    assert noise.tokens == pytest.approx(scale, rel=0.3)


@pytest.mark.parametrize(("scale", "word"), [(100.0, "large"), (1000.0, "suits"), (20_000.0, "small")])
def test_it_says_whether_the_batch_suits(scale, word):
    noise = gradient_noise(made_steps([0.5, 0.5], scale))
    assert noise is not None
    assert word in noise.words


def test_too_few_measurements_say_nothing():
    assert gradient_noise(made_steps([0.5, 0.5], 1000.0, count=9)) is None


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=10, max_size=20))
def test_whatever_was_measured_a_scale_is_positive_or_not_given(pairs):
    example = made_steps([0.5, 0.5], 1000.0, count=1)[0]
    noise = gradient_noise(
        [replace(example, gradient_norm=norm, worker_gradient_norm_sq=spread) for norm, spread in pairs]
    )
    assert noise is None or noise.tokens > 0


def test_the_answer_about_steps_tells_of_it():
    run = made_run(400, step=lambda done: replace(done, worker_gradient_norm_sq=1.5 if done.step % 8 == 0 else 0.0))
    answer = next(answer for answer in answer_all(tell(run)) if answer.key == "step")
    assert any("noise scale" in line for line in answer.evidence)
