from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.insight.validation_curve import extrapolate, find_upturn, is_flat

STEPS = list(range(1000, 13_000, 1000))


@given(st.floats(0.5, 3), st.floats(1, 100), st.floats(0.2, 1.5))
def test_a_power_law_is_extrapolated(floor, height, exponent):
    values = [floor + height * step**-exponent for step in STEPS]
    forecast = extrapolate(STEPS, values, 18_000)
    true_value = floor + height * 18_000**-exponent
    assert forecast.value == pytest.approx(true_value, abs=0.02 * (values[0] - values[-1]) + 1e-6)
    assert forecast.low <= forecast.value <= forecast.high


@given(st.integers(0, 10_000))
def test_noise_widens_the_range(seed):
    random = Random(seed)
    values = [1.5 + 30 * step**-0.5 for step in STEPS]
    noisy = [value + random.gauss(0, 0.02) for value in values]
    without, with_noise = (extrapolate(STEPS, curve, 18_000) for curve in (values, noisy))
    assert with_noise is None or with_noise.high - with_noise.low > without.high - without.low


def test_a_rising_or_short_curve_has_no_forecast():
    assert extrapolate(STEPS, [1 + step / 1e4 for step in STEPS], 18_000) is None
    assert extrapolate(STEPS[:2], [4.0, 3.0], 6000) is None


@given(st.floats(0, 3), st.floats(1, 100), st.floats(0.1, 1.9), st.integers(3, 5), st.floats(1.1, 3))
def test_few_points_give_a_wide_range_that_holds_the_true_value(floor, height, exponent, points, horizon):
    values = [floor + height * step**-exponent for step in STEPS]
    to_step = round(horizon * STEPS[points - 1])
    forecast = extrapolate(STEPS[:points], values[:points], to_step)
    rounding = 0.01 * values[points - 1]  # Only some exponents are tried.
    assert forecast.low - rounding <= floor + height * to_step**-exponent <= forecast.high + rounding


@given(st.lists(st.floats(0.1, 9), min_size=3, max_size=12))
def test_no_loss_is_expected_below_zero(values):
    forecast = extrapolate(STEPS[: len(values)], values, 2 * STEPS[len(values) - 1])
    assert forecast is None or forecast.value >= 0
    assert forecast is None or forecast.low <= forecast.value <= forecast.high


@given(
    st.lists(st.tuples(st.integers(1, 20), st.floats(0.1, 9)), min_size=3, max_size=12).map(sorted), st.floats(0, 60)
)
def test_points_at_the_same_step_give_a_forecast_or_none(points, to_step):
    steps, values = zip(*points, strict=True)
    forecast = extrapolate(steps, values, to_step)
    assert forecast is None or forecast.low <= forecast.value <= forecast.high


def test_a_forecast_that_was_wrong_before_has_a_wide_range():
    """A steep fall that slows down: what came before misled the earlier forecast."""
    values = [6.0, 5.9, 5.5, 4.5, 3.0, 2.5, 2.2, 2.0]
    steady = [3.0 + 3000 / step for step in STEPS[:8]]
    misled, right = (extrapolate(STEPS[:8], curve, 16_000) for curve in (values, steady))
    assert misled.high - misled.low > 10 * (right.high - right.low)


def test_the_upturn_is_at_the_minimum():
    assert find_upturn([3.0, 2.0, 1.5, 1.6, 1.8, 2.1], 0.01).index == 2


@given(st.integers(0, 10_000))
def test_noise_is_not_an_upturn(seed):
    random = Random(seed)
    assert find_upturn([1.5 + random.uniform(-0.004, 0.004) for _ in STEPS], 0.01) is None


def test_a_score_is_flat_if_its_last_third_gains_nothing():
    assert is_flat([10, 20, 25, 26, 26.1, 26.0], 0.3) is False
    assert is_flat([20, 24, 26, 26, 26.1, 26.0, 26.05, 26.1, 26.0], 0.3)
