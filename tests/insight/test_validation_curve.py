from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.insight.validation_curve import extrapolate, find_turn, is_flat

STEPS = list(range(1000, 13_000, 1000))


@given(st.floats(0.5, 3), st.floats(1, 100), st.floats(0.2, 1.5))
def test_a_power_law_is_followed_to_where_it_leads(floor, height, exponent):
    values = [floor + height * step**-exponent for step in STEPS]
    ahead = extrapolate(STEPS, values, 18_000)
    truth = floor + height * 18_000**-exponent
    assert ahead.value == pytest.approx(truth, abs=0.02 * (values[0] - values[-1]) + 1e-6)
    assert ahead.low <= ahead.value <= ahead.high


@given(st.integers(0, 10_000))
def test_noise_widens_the_range(seed):
    random = Random(seed)
    values = [1.5 + 30 * step**-0.5 for step in STEPS]
    shaken = [value + random.gauss(0, 0.02) for value in values]
    calm, wild = (extrapolate(STEPS, each, 18_000) for each in (values, shaken))
    assert wild is None or wild.high - wild.low > calm.high - calm.low


def test_a_curve_that_rises_or_is_short_has_no_forecast():
    assert extrapolate(STEPS, [1 + step / 1e4 for step in STEPS], 18_000) is None
    assert extrapolate(STEPS[:4], [4.0, 3.0, 2.5, 2.2], 6000) is None


def test_a_turn_is_where_the_curve_was_lowest():
    assert find_turn([3.0, 2.0, 1.5, 1.6, 1.8, 2.1], 0.01).index == 2


@given(st.integers(0, 10_000))
def test_noise_is_no_turn(seed):
    random = Random(seed)
    assert find_turn([1.5 + random.uniform(-0.004, 0.004) for _ in STEPS], 0.01) is None


def test_a_score_is_flat_when_its_last_third_brings_nothing():
    assert is_flat([10, 20, 25, 26, 26.1, 26.0], 0.3) is False
    assert is_flat([20, 24, 26, 26, 26.1, 26.0, 26.05, 26.1, 26.0], 0.3)
