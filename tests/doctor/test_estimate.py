from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.doctor.estimate import Budget, estimate
from dragoman.step_model import StepConditions, TcpLink, exchange_method, predict

SLOW_LINK = StepConditions(
    parameters=61_000_000,
    step_tokens=50_000,
    tokens_per_s=(30_000.0, 30_000.0),
    update_s=0.05,
    link=TcpLink(100e6),
)
HOSTS = {"a": 30_000.0, "b": 30_000.0}
BUDGET = Budget(steps=50_000, per_hour=14.0, currency="USD")


def test_a_slow_link_is_named_with_its_remedies_best_first():
    found = estimate(SLOW_LINK, HOSTS, "The link from a to b", BUDGET)
    assert not found.sensible
    assert found.limits == [
        "The link from a to b carries 100 Mbit/s: 21.7 of each 22.6 s would be spent waiting for it.",
        "a alone would be faster: 1.72 s per step.",
    ]
    assert found.remedies == [
        "exchange.method=auto: 0.88 s per step",
        "a link of 10 Gbit/s: 1.10 s per step",
        "a link of 1 Gbit/s: 3.05 s per step",
        "exchange.method=bf16: 11.73 s per step",
    ]
    assert found.cost == pytest.approx(14 * 50_000 * 22.6 / 3600, rel=0.01)
    assert found.summary == (
        "A step takes about 22.57 s: 0.83 s compute, 0.05 s update, 21.69 s communication (plain)."
    )


@pytest.mark.parametrize("interval", [2, 16, 64])
@pytest.mark.parametrize("name", ["plain", "bf16", "powersgd", "local"])
@pytest.mark.parametrize("bits_per_s", [1e7, 1e8, 1e9])
def test_the_method_in_use_is_no_remedy(name, interval, bits_per_s):
    method = exchange_method(name, interval=interval)
    conditions = replace(SLOW_LINK.with_bandwidth(bits_per_s), method=method, matrices=((512, 512),))
    remedies = estimate(conditions, HOSTS, "The link", BUDGET).remedies
    assert not [remedy for remedy in remedies if remedy.startswith(f"exchange.method={name}:")]


def test_a_link_that_no_setting_hides_is_named_with_the_bandwidth_that_would_do():
    plan = replace(SLOW_LINK, tokens_per_s=(750_000.0, 750_000.0), update_s=0.0).with_bandwidth(1e6)
    found = estimate(plan.with_method("auto"), HOSTS, "The link", BUDGET)
    (sentence,) = [limit for limit in found.limits if limit.startswith("No setting hides this link")]
    assert sentence.endswith("hiding it takes 9.3 Mbit/s.")
    hidden = estimate(plan.with_bandwidth(1.1e7).with_method("auto"), HOSTS, "The link", BUDGET)
    assert not [limit for limit in hidden.limits if "No setting" in limit]
    assert any("higher than that of synchronous training" in limit for limit in hidden.limits)
    assert hidden.prediction.exchange_s == 0


def test_a_fast_link_is_sensible_and_needs_no_remedy():
    found = estimate(SLOW_LINK.with_bandwidth(1e11), HOSTS, "The link", BUDGET)
    assert found.sensible
    assert found.limits == []
    assert found.remedies == []


def test_a_plan_that_mostly_waits_is_not_sensible_even_if_it_beats_one_machine():
    found = estimate(SLOW_LINK.with_machines(8).with_bandwidth(6.3e9), HOSTS, "The link", BUDGET)
    assert found.prediction.step_s < 1
    assert not found.sensible
    assert found.limits[-1] == "Most of what the machines cost would be paid for waiting."


def test_a_single_machine_does_not_communicate():
    found = estimate(SLOW_LINK.with_machines(1), {"a": 30_000.0}, "The link", BUDGET)
    assert found.sensible
    assert found.prediction.exchange_s == 0


def test_a_machine_alone_is_estimated_with_all_its_workers():
    two_each = replace(SLOW_LINK, tokens_per_s=(30_000.0,) * 4, machines=2)
    assert "a alone would be faster: 0.88 s per step." in estimate(two_each, HOSTS, "The link", BUDGET).limits


def test_a_much_slower_machine_is_named():
    plan = replace(SLOW_LINK, tokens_per_s=(30_000.0, 10_000.0), link=TcpLink(1e11))
    found = estimate(plan, {"a": 30_000.0, "b": 10_000.0}, "The link", BUDGET)
    assert any(sentence.startswith("b computes 33% as fast as a") for sentence in found.limits)


def test_more_machines_cost_more_per_hour():
    assert BUDGET.scaled(2).per_hour == 28
    assert Budget(1, None, "USD").scaled(2).per_hour is None


@given(st.integers(1, 64), st.floats(1e6, 1e12))
def test_more_machines_on_the_same_link_never_compute_longer(machines, bits_per_s):
    plan, larger = (SLOW_LINK.with_machines(count) for count in (machines, machines + 1))
    assert predict(larger).compute_s < predict(plan).compute_s
    found = estimate(plan.with_bandwidth(bits_per_s), HOSTS, "The link", BUDGET)
    assert found.total_s == pytest.approx(50_000 * found.prediction.step_s)
