import pytest
import torch
from torch import nn

from dragoman.distributed.choose_exchange import build, decide, from_settings, measure_link
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.synchronous import SynchronousExchange
from dragoman.settings import ExchangeSettings
from dragoman.step_model import PLAIN, ExchangeConditions, ExchangeMethod, RingLink

from .thread_workers import ThreadWorkers

PARAMETERS = [nn.Parameter(torch.ones(2, 2))]


def test_a_method_in_the_settings_is_used_with_its_options():
    bf16 = from_settings(ExchangeSettings(method="bf16"))
    assert (bf16.method, bf16.reason) == (ExchangeMethod("bf16", wire_format="bf16"), "as set")
    local = from_settings(ExchangeSettings(method="local", every=9, wire_format="int8"))
    assert local.method == ExchangeMethod("local", 9, "int8", overlap=1)


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
    with ThreadWorkers("a", "b") as workers:
        built = build(from_settings(settings), settings, workers.clusters[0], PARAMETERS)
    assert isinstance(built, kind)


def test_all_workers_measure_the_same_link():
    with ThreadWorkers("a", "b", "c") as workers:
        found = workers(measure_link)
    assert len(set(found)) == 1
    assert found[0].bits_per_s > 0
    assert found[0].latency_s > 0


def test_workers_of_one_machine_exchange_in_full_precision_without_a_measurement():
    with ThreadWorkers("a", "a") as workers:
        choices = workers(lambda cluster: decide(ExchangeSettings(), cluster, PARAMETERS, 1.0, lambda: 1.0))
    assert [choice.method for choice in choices] == [PLAIN, PLAIN]
    assert choices[0].link is None


def test_a_worker_that_joins_takes_the_link_and_the_speed_that_the_others_know():
    known = RingLink(1e5, 0.001)

    def choose_as(cluster):
        first = cluster.rank == 0
        return decide(
            ExchangeSettings(), cluster, PARAMETERS, 2.0 if first else 0.0, pytest.fail, known if first else None
        )

    with ThreadWorkers("a", "b") as workers:
        one, other = workers(choose_as)
    assert one == other
    assert one.link == known
    assert one.review_every == 30


def test_a_slow_link_is_measured_so_seldom_that_checks_take_little_of_the_time():
    """Before each check all weights are synchronised, and steps wait for it."""
    link, parameters = RingLink(1e5), [nn.Parameter(torch.ones(1_000_000))]
    with ThreadWorkers("a", "b") as workers:
        choice, _ = workers(lambda cluster: decide(ExchangeSettings(), cluster, parameters, 1.0, pytest.fail, link))
    assert 50 <= choice.review_every / ExchangeConditions(link, 1_000_000, 2).exchange_s(choice.method) < 51
