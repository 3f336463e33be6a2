import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dragoman.distributed.choose_exchange import (
    EXPOSED,
    MOST_STEPS,
    Choice,
    Conditions,
    MeasuredLink,
    build,
    choose,
    fixed,
    measure_link,
)
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.synchronous import SynchronousExchange
from dragoman.settings import ExchangeSettings

from .thread_workers import ThreadWorkers

MBIT = 1e6 / 8
BASE = 61_000_000
"""Parameters of transformer-base."""


def bytes_a_step(choice: Choice) -> float:
    """What a parameter costs on the wire, over the steps."""
    if choice.method == "local":
        return {"bf16": 2, "int8": 1}[choice.wire_format] / choice.every
    return {"plain": 4, "bf16": 2}[choice.method]


@pytest.mark.parametrize(
    ("mbit_per_s", "method", "every", "wire"),
    [
        (100_000, "plain", 1, "bf16"),
        (10_000, "plain", 1, "bf16"),
        (5_000, "bf16", 1, "bf16"),
        (1_000, "local", 2, "int8"),
        (100, "local", 4, "int8"),
        (10, "local", 32, "int8"),
        (1, "local", MOST_STEPS, "int8"),
    ],
)
def test_a_link_gets_the_method_that_it_can_carry(mbit_per_s, method, every, wire):
    choice = choose(Conditions(MeasuredLink(1e-4, mbit_per_s * MBIT), compute_s=2.0, parameters=BASE, world=2))
    assert choice.options == (method, every, wire)
    assert f"{mbit_per_s:,} Mbit/s" in choice.reason


latencies = st.floats(0, 1)
bandwidths = st.floats(1e3, 1e12)
links = st.builds(MeasuredLink, latencies, bandwidths)
computing = {"compute_s": st.floats(1e-3, 100), "parameters": st.integers(1, 10**10), "world": st.integers(2, 64)}


@given(one=links, other=links, **computing)
def test_a_slower_link_never_gets_a_less_compressed_method(one, other, compute_s, parameters, world):
    slower = MeasuredLink(max(one.latency_s, other.latency_s), min(one.bytes_per_s, other.bytes_per_s))
    sizes = [bytes_a_step(choose(Conditions(link, compute_s, parameters, world))) for link in (one, slower)]
    assert sizes[1] <= sizes[0]


@given(link=links, **computing)
def test_nothing_is_left_out_where_the_whole_gradient_takes_under_a_tenth_of_the_step(
    link, compute_s, parameters, world
):
    conditions = Conditions(link, compute_s, parameters, world)
    plain_s = conditions.exchange_s(4)
    assert (choose(conditions).method == "plain") == (plain_s <= EXPOSED * (compute_s + plain_s))


@given(link=links, **computing)
def test_what_happens_behind_the_steps_is_done_before_they_are(link, compute_s, parameters, world):
    conditions = Conditions(link, compute_s, parameters, world)
    choice = choose(conditions)
    if choice.method == "local" and "have to wait" not in choice.reason:
        taken_s = conditions.exchange_s(2) if choice.wire_format == "bf16" else conditions.gather_s(1)
        assert taken_s <= choice.every * compute_s
        assert world == 4 or (choice.wire_format == "int8") == (world < 4)


def test_a_method_that_is_set_is_taken_with_its_dials():
    assert fixed(ExchangeSettings(method="bf16")).options == ("bf16", 1, "bf16")
    assert fixed(ExchangeSettings(method="local", every=9, wire_format="int8")).options == ("local", 9, "int8")


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("plain", SynchronousExchange),
        ("bf16", SynchronousExchange),
        ("powersgd", SynchronousExchange),
        ("local", LocalSteps),
    ],
)
def test_every_method_of_the_settings_can_be_built(method, kind):
    settings = ExchangeSettings(method=method)
    with ThreadWorkers("a", "b") as crew:
        built = build(fixed(settings), settings, crew.clusters[0], [nn.Parameter(torch.ones(2, 2))])
    assert isinstance(built, kind)


def test_all_workers_measure_the_same_link():
    with ThreadWorkers("a", "b", "c") as crew:
        found = crew(measure_link)
    assert len(set(found)) == 1
    assert found[0].bytes_per_s > 0
    assert found[0].latency_s > 0
