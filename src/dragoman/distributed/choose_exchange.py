"""Choose the exchange method for the present world: as set, or from a measurement of the link and of a step.

`dragoman.step_model` decides; this module measures what it needs.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import Exchange
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.powersgd import PowerSgd
from dragoman.distributed.exchange.synchronous import (
    AllReduce,
    SynchronousExchange,
    all_reduce_bf16,
    all_reduce_plain,
)
from dragoman.link_rate import measure_rate
from dragoman.settings import ExchangeSettings
from dragoman.step_model import (
    PLAIN,
    ExchangeChoice,
    ExchangeConditions,
    ExchangeMethod,
    RingLink,
    choose,
    exchange_method,
    sent_bytes,
)

LONG_PROBE_S = 0.15
"""A link is measured with growing messages until twice the bytes take this much longer."""
FIRST_PROBE_BYTES, MAX_PROBE_BYTES = 16 << 10, 64 << 20
FLOAT32_BYTES = 4
REVIEW_S = 60.0
"""Time between two checks of whether the choice is still right."""
MAX_REVIEW_SHARE = 0.02
"""Largest part of the time that checks may take: before each, all weights are synchronised, and steps wait for it."""


def decide(
    settings: ExchangeSettings,
    cluster: Cluster,
    parameters: Sequence[nn.Parameter],
    compute_s: float,
    time_step: Callable[[], float],
    known: RingLink | None = None,
    present: ExchangeMethod | None = None,
) -> ExchangeChoice:
    """The method for the present world. All workers call this together and get the same choice.

    A link that one of them knows already is not measured again, nor is a step (`compute_s`; 0 where unknown). `present`
    is the method in use, the same for all of them.
    """
    if settings.method != "auto":
        return from_settings(settings)
    if cluster.machines == 1:
        return ExchangeChoice(PLAIN, "all workers are on one machine")
    times, links = zip(*cluster.all_gather_json((compute_s, known and vars(known))), strict=True)
    slowest_s = max(times) or max(cluster.all_gather_json(time_step()))
    known_link = next((each for each in links if each is not None), None)
    started_at_s = time.perf_counter()
    link = RingLink(**known_link) if known_link else measure_link(cluster)
    measured_s = max(cluster.all_gather_json(time.perf_counter() - started_at_s))
    count = sum(parameter.numel() for parameter in parameters)
    conditions = ExchangeConditions(link, count, cluster.world_size)
    choice = choose(conditions, slowest_s, present=present)
    review_s = max(REVIEW_S, (conditions.exchange_s(choice.method) + measured_s) / MAX_REVIEW_SHARE)
    return replace(choice, review_every=math.ceil(review_s / slowest_s), link=link)


def from_settings(settings: ExchangeSettings) -> ExchangeChoice:
    """The method that the settings name."""
    method = exchange_method(
        settings.method,
        interval=settings.every,
        wire_format=settings.wire_format,
        overlap=settings.overlap,
        rank=settings.powersgd_rank,
    )
    return ExchangeChoice(method, "as set")


def build(
    choice: ExchangeChoice, settings: ExchangeSettings, cluster: Cluster, parameters: Sequence[nn.Parameter]
) -> Exchange:
    """The implementation of a choice."""
    method = choice.method
    if method.name == "local":
        return LocalSteps(
            cluster,
            parameters,
            method.interval,
            method.wire_format,
            settings.outer_learning_rate,
            settings.outer_momentum,
            overlap=method.overlap,
            lengthen_steps=settings.lengthen_steps,
            quorum=settings.quorum,
            grace_s=settings.grace_s,
        )
    methods: dict[str, AllReduce] = {
        "plain": all_reduce_plain,
        "bf16": all_reduce_bf16,
        "powersgd": PowerSgd(settings.powersgd_rank),
    }
    return SynchronousExchange(cluster, parameters, methods[method.name])


def measure_link(cluster: Cluster) -> RingLink:
    """Time all-reduces of growing size. Every worker takes part, and all get the slowest worker's result."""
    latency_s = max(cluster.all_gather_json(min(_time_all_reduce(cluster, FLOAT32_BYTES) for _ in range(5))))
    bytes_per_s = measure_rate(
        lambda size_bytes: max(cluster.all_gather_json(_time_all_reduce(cluster, size_bytes))),
        FIRST_PROBE_BYTES,
        MAX_PROBE_BYTES,
        latency_s,
        LONG_PROBE_S,
    )
    return RingLink(8 * sent_bytes(bytes_per_s / FLOAT32_BYTES, "fp32", cluster.world_size), latency_s)


def _time_all_reduce(cluster: Cluster, size_bytes: int) -> float:
    message = torch.zeros(size_bytes // FLOAT32_BYTES, device=cluster.device)
    started = time.perf_counter()
    cluster.all_reduce(message)
    if message.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started
