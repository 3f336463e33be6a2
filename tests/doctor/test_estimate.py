import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.doctor.estimate import Budget, changed, diagnose
from dragoman.errors import DragomanError
from dragoman.step_model import StepConditions, predict

RUN_C = StepConditions(
    parameters=61_000_000,
    step_tokens=50_000,
    tokens_per_s=(30_000.0, 30_000.0),
    update_s=0.05,
    bits_per_s=100e6,
)
HOSTS = {"a": 30_000.0, "b": 30_000.0}
BUDGET = Budget(steps=50_000, per_hour=14.0, currency="USD")


def test_run_c_is_told_before_it_starts():
    found = diagnose(RUN_C, HOSTS, "The port between a and b", BUDGET)
    assert not found.sensible
    assert any("The port between a and b carries 100 Mbit/s: 21.7 of each 22.6 s" in line for line in found.sentences)
    assert any("alone would be faster: 1.72 s" in line for line in found.sentences)
    assert found.remedies == [
        "exchange.method=local: 0.88 s a step",
        "a link of 10 Gbit/s: 1.10 s a step",
        "a link of 1 Gbit/s: 3.05 s a step",
        "exchange.method=bf16: 11.73 s a step",
    ]
    assert found.cost == pytest.approx(14 * 50_000 * 22.6 / 3600, rel=0.01)


def test_a_fast_link_is_sensible_and_needs_nothing():
    found = diagnose(changed(RUN_C, "link=100gbit"), HOSTS, "The link", BUDGET)
    assert found.sensible
    assert found.remedies == []
    assert len(found.sentences) == 2


def test_one_machine_waits_for_no_network():
    found = diagnose(changed(RUN_C, "hosts=1"), {"a": 30_000.0}, "The link", BUDGET)
    assert found.sensible
    assert found.prediction.exchange_s == 0


def test_the_slower_machine_is_named():
    plan = StepConditions(**{**vars(RUN_C), "tokens_per_s": (30_000.0, 10_000.0), "bits_per_s": 1e11})
    found = diagnose(plan, {"a": 30_000.0, "b": 10_000.0}, "The link", BUDGET)
    assert any(line.startswith("b computes 33% as fast as a") for line in found.sentences)


def test_more_machines_cost_more_an_hour():
    assert BUDGET.scaled(2).per_hour == 28
    assert Budget(1, None, "USD").scaled(2).per_hour is None


def test_a_question_changes_the_plan():
    plan = changed(RUN_C, "link=2.5gbit, hosts=4,exchange=local")
    assert (plan.bits_per_s, plan.workers, plan.method, plan.every) == (2.5e9, 4, "local", 16)


@pytest.mark.parametrize("text", ["", "link=fast", "hosts=0", "hosts=-1", "exchange=pigeon", "speed=9", "link=1gbit;"])
def test_a_question_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(DragomanError, match="link=1gbit"):
        changed(RUN_C, text)


@given(st.integers(1, 64), st.floats(1e6, 1e12))
def test_more_machines_on_the_same_link_never_compute_longer(hosts, bits_per_s):
    plan = changed(RUN_C, f"hosts={hosts}")
    more = changed(RUN_C, f"hosts={hosts + 1}")
    assert predict(more).compute_s < predict(plan).compute_s
    found = diagnose(StepConditions(**{**vars(plan), "bits_per_s": bits_per_s}), HOSTS, "The link", BUDGET)
    assert found.total_s == pytest.approx(50_000 * found.prediction.step_s)
