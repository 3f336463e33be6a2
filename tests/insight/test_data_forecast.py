import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.insight.data_forecast import CurvePart, LearningCurve

PAIRS = (2900, 9700, 29_000)


def curve(*losses: float) -> LearningCurve:
    return LearningCurve([CurvePart(pairs, nll, None, "run") for pairs, nll in zip(PAIRS, losses, strict=False)])


@given(st.floats(0.5, 2), st.floats(5, 200), st.floats(0.2, 0.8))
def test_the_interval_holds_what_twice_as_many_pairs_bring(floor, height, exponent):
    losses = [floor + height * pairs**-exponent for pairs in PAIRS]
    forecast = curve(*losses).more_data
    assert forecast.step == 2 * PAIRS[-1]
    assert forecast.low <= floor + height * (2 * PAIRS[-1]) ** -exponent + 0.01 * losses[-1]
    assert floor + height * (2 * PAIRS[-1]) ** -exponent <= forecast.high + 0.01 * losses[-1]


def test_the_interval_holds_a_run_that_more_pairs_did_not_help():
    """Losses of short runs, whose steps were too few for more pairs to matter: only noise is left."""
    pairs, losses = (150, 300, 600, 1200), (5.894, 5.839, 5.822, 5.817)
    known = LearningCurve([CurvePart(*part, None, "run") for part in zip(pairs, losses, strict=True)])
    forecast = known.forecast(3000)
    assert forecast.low < 5.823 < forecast.high
    assert forecast.value <= losses[-1]


@given(st.lists(st.floats(0.01, 0.5), min_size=4, max_size=4), st.floats(1.5, 4))
def test_the_interval_holds_a_curve_that_does_not_bend(gains, factor):
    """Each part brings as much as the one before or less; the forecast one as much as the last."""
    gains = sorted(gains, reverse=True)
    losses = [8.0 - sum(gains[:number]) for number in range(5)]
    known = LearningCurve([CurvePart(1000 * 2**number, nll, None, "run") for number, nll in enumerate(losses)])
    forecast = known.forecast(round(16_000 * factor))
    assert forecast.low <= losses[-1] - math.log2(factor) * gains[-1] <= forecast.high


def test_the_interval_holds_a_run_on_few_pairs():
    """Losses on Multi30k, on a GPU."""
    pairs, losses = (1450, 2900, 5799, 11_598), (3.879, 3.288, 2.638, 2.159)
    known = LearningCurve([CurvePart(*part, None, "run") for part in zip(pairs, losses, strict=True)])
    forecast = known.forecast(28_995)
    assert forecast.low < 1.551 < forecast.high


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ((4.0, 3.0, 2.2), "Twice as many would lower it by"),
        ((2.0, 1.99, 1.985), "would hardly change it"),
        ((2.0, 2.0, 2.1), "does not fall with the number of pairs"),
        ((4.0, 3.0), "needs runs on at least three parts"),
    ],
)
def test_the_verdict_is_stated_in_words(losses, words):
    assert words in curve(*losses).describe()


def test_scripts_get_the_parts_and_the_forecast():
    content = curve(4.0, 3.0, 2.2).to_json()
    assert [part["pairs"] for part in content["parts"]] == list(PAIRS)
    forecast = content["twice_as_many_pairs"]
    assert forecast["low"] <= forecast["nll"] <= 2.2
    assert forecast["nll"] <= forecast["high"]
    assert curve(2.0, 2.0, 2.1).to_json()["twice_as_many_pairs"] is None
