"""Which way of exchanging gradients suits the machines: measured at the start, and looked at again while training.

`auto` takes the least lossy method whose exposed communication stays under a tenth of the step. What it compares is
measured: the time to compute a step, and the link's latency and bandwidth as the workers themselves see them.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from dragoman.settings import ExchangeSettings

EXPOSED = 0.10
"""Largest part of a step that may go into waiting for the exchange."""
PROBE_S = 0.15
"""A link is measured with growing messages until one takes this long."""
LARGEST_PROBE_BYTES = 64 << 20
MARGIN = 1.3
"""How much longer than expected an exchange behind the steps may take before anyone waits for it."""
LOOK_AGAIN_S = 60.0
"""How often the decision is looked at again."""
FEWEST_STEPS, MOST_STEPS = 2, 128


@dataclass(frozen=True)
class MeasuredLink:
    """What a worker can expect of the network between the machines."""

    latency_s: float
    """Of a sum of nothing over all workers."""
    bytes_per_s: float
    """What each worker puts on the wire, of a large sum."""


@dataclass(frozen=True)
class Conditions:
    """What decides which method is fast enough."""

    link: MeasuredLink
    compute_s: float
    """Of a step without exchange, on the slowest worker."""
    parameters: int
    world: int

    def exchange_s(self, bytes_a_parameter: float) -> float:
        """How long a sum over all parameters takes."""
        sent = 2 * (self.world - 1) / self.world * self.parameters * bytes_a_parameter
        return self.link.latency_s + sent / self.link.bytes_per_s

    def gather_s(self, bytes_a_parameter: float) -> float:
        """How long it takes until everyone has everyone's parameters."""
        return self.link.latency_s + (self.world - 1) * self.parameters * bytes_a_parameter / self.link.bytes_per_s


@dataclass(frozen=True)
class Choice:
    """A method with its options, and the reason in a sentence."""

    method: str
    every: int = 1
    wire_format: str = "bf16"
    reason: str = ""
    review_every: int = 0
    """Steps after which to decide again; 0 is never."""
    link: MeasuredLink | None = None
    """What was measured, if so."""

    @property
    def options(self) -> tuple[str, int, str]:
        """All but the reason."""
        return self.method, self.every, self.wire_format


def decide(
    settings: ExchangeSettings,
    cluster: Cluster,
    parameters: Sequence[nn.Parameter],
    compute_s: float,
    rehearse: Callable[[], float],
    known: MeasuredLink | None = None,
) -> Choice:
    """The method for the present world: as set, or measured. All workers call this together, and decide alike.

    What one of them knows already, the link or how long a step computes, is not measured again.
    """
    if settings.method != "auto":
        return fixed(settings)
    if cluster.machines == 1:
        return Choice("plain", reason="all workers are on one machine")
    times, links = zip(*cluster.all_gather_json((compute_s, known and vars(known))), strict=True)
    slowest_s = max(times) or max(cluster.all_gather_json(rehearse()))
    found = next((each for each in links if each is not None), None)
    link = MeasuredLink(**found) if found else measure_link(cluster)
    count = sum(parameter.numel() for parameter in parameters)
    choice = choose(Conditions(link, slowest_s, count, cluster.world_size))
    return replace(choice, review_every=math.ceil(LOOK_AGAIN_S / slowest_s), link=link)


def choose(conditions: Conditions) -> Choice:
    """The least lossy method that keeps exposed communication under a tenth of the step."""
    compute_s = conditions.compute_s
    plain_s, bf16_s = conditions.exchange_s(4), conditions.exchange_s(2)
    seen = (
        f"the link carries {8e-6 * conditions.link.bytes_per_s:,.0f} Mbit/s, a step computes for {compute_s:.2f} s, "
        f"and a plain exchange takes {plain_s:.2f} s"
    )
    if plain_s <= EXPOSED * (compute_s + plain_s):
        return Choice("plain", reason=f"{seen}: nothing needs to be left out")
    if bf16_s <= EXPOSED * (compute_s + bf16_s):
        return Choice("bf16", reason=f"{seen}: in bfloat16 it takes {bf16_s:.2f} s, under a tenth of the step")
    # Few workers send least in 8 bits, though those cannot be summed on the way.
    hidden_s = {"int8": conditions.gather_s(1), "bf16": bf16_s}
    wire = min(hidden_s, key=lambda name: hidden_s[name])
    every = max(FEWEST_STEPS, math.ceil(MARGIN * hidden_s[wire] / compute_s))
    if every <= MOST_STEPS:
        return Choice("local", every, wire, f"{seen}: weights meet every {every} steps, behind the computing")
    return Choice(
        "local", MOST_STEPS, wire, f"{seen}: even weights that meet every {MOST_STEPS} steps have to wait for it"
    )


def build(choice: Choice, settings: ExchangeSettings, cluster: Cluster, parameters: Sequence[nn.Parameter]) -> Exchange:
    """The method itself."""
    if choice.method == "local":
        # An elastic world meets as a whole: who is lost between two meetings takes nothing along that others need.
        return LocalSteps(
            cluster, parameters, choice.every, choice.wire_format, settings.outer_learning_rate,
            settings.outer_momentum, streaming=not cluster.survives_losses,
        )  # fmt: skip
    methods: dict[str, AllReduce] = {
        "plain": all_reduce_plain,
        "bf16": all_reduce_bf16,
        "powersgd": PowerSgd(settings.powersgd_rank),
    }
    return SynchronousExchange(cluster, parameters, methods[choice.method])


def fixed(settings: ExchangeSettings) -> Choice:
    """The method that the settings name."""
    if settings.method == "local":
        return Choice("local", settings.every, settings.wire_format, "as set")
    return Choice(settings.method, reason="as set")


def measure_link(cluster: Cluster) -> MeasuredLink:
    """Time sums of growing size. Every worker takes part, and all get the same answer: the slowest one's."""
    latency_s = min(_time_sum(cluster, 1) for _ in range(5))
    count = 16_384
    while True:
        spent_s = max(cluster.all_gather_json(_time_sum(cluster, count)))
        if spent_s > PROBE_S or 4 * count >= LARGEST_PROBE_BYTES:
            break
        count *= 4
    # A second one of the same size: shaped ports let the first bytes through at full speed.
    spent_s = max(cluster.all_gather_json(_time_sum(cluster, count)))
    latency_s = max(cluster.all_gather_json(latency_s))
    sent_bytes = 2 * (cluster.world_size - 1) / cluster.world_size * 4 * count
    return MeasuredLink(latency_s, sent_bytes / max(spent_s - latency_s, 1e-6))


def _time_sum(cluster: Cluster, count: int) -> float:
    message = torch.zeros(count, device=cluster.device)
    started = time.perf_counter()
    cluster.all_reduce(message)
    if message.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started
