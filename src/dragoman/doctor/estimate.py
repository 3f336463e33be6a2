"""Estimate time, cost and limits of a run from the conditions of its steps, and list what would make it faster."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dragoman.step_model import (
    AUTO,
    StepConditions,
    StepPrediction,
    TcpLink,
    describe_unhidden,
    expected_loss_increase,
    predict,
)

MAX_SENSIBLE_WAIT = 0.5
"""Part of a step spent on communication above which a plan is not sensible."""
MIN_NOTABLE_WAIT = 0.1
"""Part of a step spent on communication above which the slowest link is named."""
MIN_RELATIVE_SPEED = 0.8
"""A machine with less than this part of the fastest one's speed is named."""
MAX_REMEDY_RATIO = 0.9
"""A remedy is listed if it shortens the step to this part of its time or less."""
REMEDY_METHODS = ("plain", "bf16", AUTO)
"""Methods to propose. PowerSGD is left to users who know that their model tolerates it."""
COMMON_LINKS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}


@dataclass(frozen=True)
class Budget:
    """Length of a run, and the price of all machines together."""

    steps: int
    per_hour: float | None
    currency: str

    def scaled(self, factor: float) -> "Budget":
        """The same for more or fewer machines like these."""
        return self if self.per_hour is None else replace(self, per_hour=self.per_hour * factor)


@dataclass(frozen=True)
class Estimate:
    """Prediction for a run, with its limits in sentences."""

    prediction: StepPrediction
    step_low_s: float
    step_high_s: float
    """Range in which the time of a step lies, by how the benchmarks of the machines scatter."""
    method: str
    tokens_per_s: float
    total_s: float
    """Evaluation is not included."""
    total_low_s: float
    total_high_s: float
    cost: float | None
    currency: str
    limits: list[str]
    remedies: list[str]
    """Best first."""
    sensible: bool
    """False if most of each step is communication, or one machine alone would be faster."""

    @property
    def tokens_per_s_range(self) -> tuple[float, float]:
        tokens = self.tokens_per_s * self.prediction.step_s
        return tokens / self.step_high_s, tokens / self.step_low_s

    @property
    def summary(self) -> str:
        """Time of a step and its parts, in a sentence."""
        parts = self.prediction
        return (
            f"A step takes about {parts.step_s:.2f} s: {parts.compute_s:.2f} s compute, {parts.update_s:.2f} s update, "
            f"{parts.exchange_s:.2f} s communication ({self.method})."
        )


def estimate(
    conditions: StepConditions,
    hosts: Mapping[str, float],
    slowest_link: str,
    budget: Budget,
    bounds: tuple[StepConditions, StepConditions] | None = None,
) -> Estimate:
    """`hosts` are tokens per second by host; `slowest_link` is a name for the link of the conditions.

    `bounds` are the conditions if the machines are as fast, and as slow, as is likely.
    """
    prediction = predict(conditions)
    low_s, high_s = (predict(bound).step_s for bound in bounds or (conditions, conditions))
    total_s = budget.steps * prediction.step_s
    limits, sensible = _find_limits(conditions, prediction, hosts, slowest_link)
    return Estimate(
        prediction=prediction,
        step_low_s=low_s,
        step_high_s=high_s,
        method=conditions.method.name,
        tokens_per_s=conditions.step_tokens / prediction.step_s,
        total_s=total_s,
        total_low_s=budget.steps * low_s,
        total_high_s=budget.steps * high_s,
        cost=None if budget.per_hour is None else budget.per_hour * total_s / 3600,
        currency=budget.currency,
        limits=limits,
        remedies=_find_remedies(conditions, prediction),
        sensible=sensible,
    )


def _find_limits(
    conditions: StepConditions, prediction: StepPrediction, hosts: Mapping[str, float], slowest_link: str
) -> tuple[list[str], bool]:
    """Sentences about what limits the run, and whether the plan is sensible."""
    limits: list[str] = []
    if conditions.single_machine:
        return limits, True
    waiting = prediction.exchange_s / prediction.step_s
    fastest, slowest = (chosen(hosts, key=lambda host: hosts[host]) for chosen in (max, min))
    alone_s = predict(conditions.with_machines(1)).step_s
    if waiting > MIN_NOTABLE_WAIT:
        limits.append(
            f"{slowest_link} carries {conditions.link.bits_per_s / 1e6:,.0f} Mbit/s: {prediction.exchange_s:.1f} of "
            f"each {prediction.step_s:.1f} s would be spent waiting for it."
        )
        strongest = conditions.chosen().method
        if not conditions.exchange.hides(strongest, conditions.compute_s):
            limits.append(f"{describe_unhidden(conditions.exchange, strongest, conditions.compute_s)}.")
    if loss := expected_loss_increase(conditions.method, conditions.workers):
        limits.append(
            f"Weights are synchronised every {conditions.method.interval} steps in {conditions.method.wire_format}: "
            f"expect a loss {loss:.1%} higher than that of synchronous training."
        )
    slower_than_one = prediction.step_s >= alone_s
    if slower_than_one:
        limits.append(f"{fastest} alone would be faster: {alone_s:.2f} s per step.")
    elif waiting > MAX_SENSIBLE_WAIT:
        limits.append("Most of what the machines cost would be paid for waiting.")
    if hosts[slowest] < MIN_RELATIVE_SPEED * hosts[fastest]:
        limits.append(
            f"{slowest} computes {hosts[slowest] / hosts[fastest]:.0%} as fast as {fastest}: training.shares=auto "
            "gives each worker a share that fits its speed."
        )
    return limits, not (slower_than_one or waiting > MAX_SENSIBLE_WAIT)


def _find_remedies(conditions: StepConditions, now: StepPrediction) -> list[str]:
    """Changes that shorten the step noticeably, best first."""
    if conditions.single_machine:
        return []
    others = {f"exchange.method={name}": conditions.with_method(name) for name in REMEDY_METHODS}
    options = {name: option for name, option in others.items() if option.method != conditions.method}
    options |= {
        f"a link of {name}": conditions.with_bandwidth(bits_per_s)
        for name, bits_per_s in COMMON_LINKS.items()
        if isinstance(conditions.link, TcpLink) and bits_per_s > conditions.link.bits_per_s
    }
    times = sorted((predict(option).step_s, name) for name, option in options.items())
    return [f"{name}: {step_s:.2f} s per step" for step_s, name in times if step_s < MAX_REMEDY_RATIO * now.step_s]
