import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.step_model import METHODS, StepConditions, predict, what_if

BASE = StepConditions(
    parameters=61_000_000,
    step_tokens=50_000,
    tokens_per_s=(50_000.0, 50_000.0),
    update_s=0.05,
    bits_per_s=100e6,
)
plans = st.builds(
    StepConditions,
    parameters=st.integers(1, 10**9),
    step_tokens=st.integers(1, 10**6),
    tokens_per_s=st.lists(st.floats(1, 1e7), min_size=1, max_size=6).map(tuple),
    update_s=st.floats(0, 10),
    bits_per_s=st.floats(1e5, 1e11),
    latency_s=st.floats(0, 1),
    method=st.sampled_from(METHODS),
    every=st.integers(1, 128),
)


def test_run_c_by_hand():
    """Two workers, 244 MB of gradients, 100 Mbit/s: 19.5 s on a wire of which a ring fills nine tenths."""
    predicted = predict(BASE)
    assert predicted.compute_s == pytest.approx(0.5)
    assert predicted.exchange_s == pytest.approx(19.52 / 0.9)
    assert what_if(BASE, bits_per_s=1e9).exchange_s == pytest.approx(1.952 / 0.9)
    assert what_if(BASE, method="bf16").exchange_s == pytest.approx(9.76 / 0.9)
    assert what_if(BASE, method="local", every=32).exchange_s == 0, "it hides behind 32 steps of 0.55 s"


@given(plans, st.floats(1, 100))
def test_a_faster_link_never_makes_a_step_longer(plan, factor):
    assert what_if(plan, bits_per_s=plan.bits_per_s * factor).step_s <= predict(plan).step_s * (1 + 1e-9)


@given(plans)
def test_one_worker_waits_for_nobody(plan):
    assert what_if(plan, tokens_per_s=plan.tokens_per_s[:1]).exchange_s == 0


@given(plans)
def test_shares_that_follow_speeds_are_never_slower_than_equal_ones(plan):
    assert predict(plan).compute_s <= what_if(plan, balanced=False).compute_s * (1 + 1e-9)
