import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.schedule import inverse_sqrt, learning_rate_at
from dragoman.settings import ScheduleSettings

POLICIES = ["inverse_sqrt", "constant", "linear", "cosine", "warmup_stable_decay"]


def schedule(policy: str, **changes: object) -> ScheduleSettings:
    return ScheduleSettings(**{"policy": policy, "learning_rate": 0.01, "warmup_steps": 100, **changes})


def test_inverse_sqrt_has_the_values_of_the_original_recipe():
    """d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), times 2, as in the original recipe."""
    assert inverse_sqrt(8000, 2.0, 8000, 512) == pytest.approx(2 * 512**-0.5 * 8000**-0.5)
    assert inverse_sqrt(4000, 2.0, 8000, 512) == pytest.approx(inverse_sqrt(8000, 2.0, 8000, 512) / 2)
    assert inverse_sqrt(32000, 2.0, 8000, 512) == pytest.approx(inverse_sqrt(8000, 2.0, 8000, 512) / 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_learning_rate_grows_linearly_during_warm_up(policy):
    settings = schedule(policy)
    quarter, half, whole = (learning_rate_at(step, settings, 1000, 64) for step in (25, 50, 100))
    assert half == pytest.approx(2 * quarter)
    assert whole == pytest.approx(2 * half)


@pytest.mark.parametrize(("policy", "middle", "end"), [("linear", 0.5, 0), ("cosine", 0.5, 0), ("constant", 1, 1)])
def test_each_policy_has_its_value_at_half_way_and_one_step_after_the_last(policy, middle, end):
    settings = schedule(policy)
    assert learning_rate_at(550, settings, 999, 64) == pytest.approx(middle * settings.learning_rate)
    assert learning_rate_at(1000, settings, 999, 64) == pytest.approx(end * settings.learning_rate, abs=1e-9)


def test_warmup_stable_decay_is_constant_and_decays_at_the_end():
    settings = schedule("warmup_stable_decay", decay_fraction=0.2)
    constant = [learning_rate_at(step, settings, 1000, 64) for step in (101, 800)]
    assert constant == [settings.learning_rate] * 2
    assert learning_rate_at(901, settings, 1000, 64) == pytest.approx(settings.learning_rate / 2)
    assert 0 < learning_rate_at(1000, settings, 1000, 64) < settings.learning_rate / 100


@given(
    st.sampled_from(POLICIES), st.integers(1, 10_000), st.integers(0, 5000), st.integers(1, 10_000), st.floats(0.05, 1)
)
def test_the_learning_rate_is_finite_and_between_zero_and_its_peak(policy, step, warmup, total, share):
    settings = schedule(policy, warmup_steps=warmup, decay_fraction=share)
    rate = learning_rate_at(step, settings, total, 64)
    assert math.isfinite(rate)
    peak = settings.learning_rate if policy != "inverse_sqrt" else settings.learning_rate * 64**-0.5
    assert 0 <= rate <= peak * (1 + 1e-9)


def steepest_slope(settings: ScheduleSettings, total: int) -> float:
    """The largest change of the rate in one step that the shapes of warm-up and decay allow."""
    warmup_steps = max(1, settings.warmup_steps)
    decay_steps = {
        "constant": math.inf,
        "warmup_stable_decay": max(1.0, settings.decay_fraction * total),
        "linear": total - warmup_steps + 1,
        "cosine": 2 / math.pi * (total - warmup_steps + 1),
    }[settings.policy]
    return settings.learning_rate / min(warmup_steps, max(1.0, decay_steps))


@given(
    st.sampled_from(["constant", "linear", "cosine", "warmup_stable_decay"]),
    st.integers(0, 150), st.integers(1, 120), st.floats(0.01, 1),
)  # fmt: skip
def test_the_learning_rate_never_jumps_and_every_update_counts(policy, warmup, total, share):
    settings = schedule(policy, warmup_steps=warmup, decay_fraction=share)
    rates = [learning_rate_at(step, settings, total, 64) for step in range(1, total + 1)]
    assert min(rates) > 0
    jumps = [abs(after - before) for before, after in pairwise(rates)]
    assert max(jumps, default=0) <= steepest_slope(settings, total) * (1 + 1e-9)
    decay_start = total - share * total if policy == "warmup_stable_decay" else total
    if max(1, warmup) <= decay_start:
        assert max(rates) == pytest.approx(settings.learning_rate), "the peak is reached where nothing overlaps"


@given(st.integers(1, 150), st.integers(2, 120))
def test_the_inverse_square_root_never_jumps(warmup, total):
    settings = schedule("inverse_sqrt", warmup_steps=warmup)
    rates = [learning_rate_at(step, settings, total, 64) for step in range(1, total + 1)]
    assert max(abs(after - before) for before, after in pairwise(rates)) <= rates[0] * (1 + 1e-9)
