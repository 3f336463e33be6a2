"""Runs whose loss is a power law, lowered in proportion to the decay of the learning rate."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import events
from dragoman.insight.loss_forecast import MAX_DECAY_GAIN, forecast_loss, warm_up_end
from dragoman.insight.run_history import RunHistory, build_history
from dragoman.recipe import resolve
from dragoman.schedule import learning_rate_at

from .synthetic_runs import evaluation, synthetic_run

TOTAL = 6000
STARTED = next(event for event in synthetic_run(1) if isinstance(event, events.RunStarted))
DECAYING = ["linear", "cosine", "warmup_stable_decay"]


def loss_at(step: int, policy: str, gain: float, floor: float, exponent: float) -> float:
    schedule = settings_of(policy).schedule
    rate = learning_rate_at(step, schedule, TOTAL, 512) / schedule.learning_rate
    return (floor + 30 * step**-exponent) * (1 - gain * (1 - rate))


def settings_of(policy: str):
    overrides = [f"training.steps={TOTAL}", f"schedule.policy={policy}", "schedule.warmup_steps=100"]
    return resolve("modern", overrides).settings


def run_until(
    step: int, policy: str, gain: float, floor: float, exponent: float, every: int = 300, total: int = TOTAL
) -> RunHistory:
    started = replace(STARTED, total_steps=total, settings=settings_of(policy).model_dump(mode="json"))
    done = [
        evaluation(number, loss_at(number, policy, gain, floor, exponent), None, STARTED.at_s + number)
        for number in range(every, step + 1, every)
    ]
    return build_history([started, *done])


@pytest.mark.parametrize("policy", DECAYING)
@given(
    gain=st.floats(0, 0.95 * MAX_DECAY_GAIN),
    floor=st.floats(0.5, 3),
    exponent=st.floats(0.3, 1),
    part=st.floats(0.4, 0.9),
)
def test_the_range_holds_the_loss_after_the_decay(policy, gain, floor, exponent, part):
    forecast = forecast_loss(run_until(round(part * TOTAL), policy, gain, floor, exponent), TOTAL)
    assert forecast.low <= loss_at(TOTAL, policy, gain, floor, exponent) <= forecast.high
    assert 0 <= forecast.low <= forecast.value <= forecast.high


@pytest.mark.parametrize("policy", DECAYING)
@pytest.mark.parametrize("total", [331, TOTAL, 1_000_000])
@pytest.mark.parametrize("every", [1, 30])
def test_the_beginning_of_a_run_of_any_length_has_a_forecast(policy, total, every):
    forecast = forecast_loss(run_until(330, policy, 0.1, 1.5, 0.5, every, total), round(1.5 * 330))
    assert 0 <= forecast.low <= forecast.value <= forecast.high


def test_before_a_decay_a_lower_loss_is_expected_than_without_one():
    constant, decaying = (
        forecast_loss(run_until(4200, policy, 0.0, 1.5, 0.5), TOTAL) for policy in ("constant", DECAYING[2])
    )
    assert decaying.value < constant.value
    assert decaying.high - decaying.low > constant.high - constant.low


@pytest.mark.parametrize("policy", ["constant", *DECAYING])
def test_from_three_evaluations_the_range_is_wider_than_from_many(policy):
    few, many = (forecast_loss(run_until(3000, policy, 0.1, 1.5, 0.5, every), TOTAL) for every in (1000, 100))
    assert few.low <= loss_at(TOTAL, policy, 0.1, 1.5, 0.5) <= few.high
    assert few.high - few.low > many.high - many.low


def warming_up(policy: str, exponent: float, until: int, warmup_steps: int = TOTAL) -> RunHistory:
    """A run whose loss falls with a power of the sum of its learning rates, which grows with the square of the step."""
    history = run_until(until, policy, 0.0, 1.5, 0.5)
    history.started.settings["schedule"]["warmup_steps"] = warmup_steps
    done = [replace(each, nll=warm_loss(each.step, exponent)) for each in history.evaluations]
    return build_history([history.started, *done])


def warm_loss(step: int, exponent: float) -> float:
    return 6 - 3 * (step / TOTAL) ** (2 * exponent)


@pytest.mark.parametrize("policy", ["inverse_sqrt", "constant", "linear"])
@given(exponent=st.floats(0.3, 0.9), part=st.floats(0.3, 0.9))
def test_while_the_learning_rate_rises_the_loss_may_fall_faster(policy, exponent, part):
    history = warming_up(policy, exponent, round(part * TOTAL))
    assert warm_up_end(history) == TOTAL
    forecast = forecast_loss(history, TOTAL)
    assert forecast.low <= warm_loss(TOTAL, exponent) <= forecast.high
    assert 0 <= forecast.low <= forecast.value <= forecast.high


def test_a_decay_that_begins_in_the_warm_up_ends_the_rise():
    history = warming_up("warmup_stable_decay", 0.5, 900, warmup_steps=2 * TOTAL)
    assert 900 < warm_up_end(history) < TOTAL
    assert warm_up_end(warming_up("linear", 0.5, 900, warmup_steps=800)) is None


def test_a_curve_that_no_longer_falls_stays():
    history = run_until(3000, "constant", 0.0, 1.5, 0.5)
    flat = [replace(done, nll=2.0 + 0.001 * (number % 2)) for number, done in enumerate(history.evaluations)]
    assert forecast_loss(build_history([history.started, *flat]), TOTAL).value == pytest.approx(2.0, abs=0.002)


def test_settings_of_another_version_give_a_forecast_without_the_decay():
    history = run_until(3000, "linear", 0.1, 1.5, 0.5)
    history.started.settings["schedule"]["unknown"] = 1
    assert forecast_loss(history, TOTAL).low > 0
