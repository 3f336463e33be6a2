"""Remaining time of a run, and its cost."""

import math
from dataclasses import dataclass
from statistics import fmean

from dragoman.insight.run_history import RunHistory

RECENT_STEPS = 200
RECENT_EVALUATIONS = 3


@dataclass(frozen=True)
class RemainingTime:
    """Time until the run ends."""

    steps_s: float
    evaluations_s: float
    checkpoints_s: float

    @property
    def total_s(self) -> float:
        return self.steps_s + self.evaluations_s + self.checkpoints_s


def estimate_remaining_time(history: RunHistory) -> RemainingTime | None:
    """Estimate from the latest steps, evaluations and checkpoints; None before the first step."""
    if not history.steady_steps:
        return None
    steps = max(0, history.total_steps - history.step)
    step_s = fmean(step.step_s for step in history.steady_steps[-RECENT_STEPS:])
    evaluations = _remaining_count(history, history.setting("evaluation", "every"))
    if history.setting("checkpoint", "average") and steps:
        evaluations += 1  # The average of checkpoints is evaluated too.
    evaluation_s = _mean([done.evaluation_s for done in history.evaluations[-RECENT_EVALUATIONS:]])
    # A checkpoint is also saved after every evaluation.
    checkpoints = max(_remaining_count(history, history.setting("checkpoint", "every")), evaluations)
    stall_s = _mean([saved.stall_s for saved in history.checkpoints[-RECENT_EVALUATIONS:]])
    return RemainingTime(steps * step_s, evaluations * evaluation_s, checkpoints * stall_s)


def _remaining_count(history: RunHistory, every: int | None) -> int:
    """Occurrences still to come of what happens every so many steps and at the end."""
    if not every or history.step >= history.total_steps:
        return 0
    return math.ceil(history.total_steps / every) - history.step // every


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0


@dataclass(frozen=True)
class HourlyCost:
    """Price of all machines together, in the recipe's currency."""

    price_per_hour: float
    currency: str

    def amount(self, seconds: float) -> float:
        return self.price_per_hour * seconds / 3600

    def format(self, seconds: float) -> str:
        return f"{self.amount(seconds):,.2f} {self.currency}"


def find_hourly_cost(history: RunHistory) -> HourlyCost | None:
    """The hourly cost of all machines; None unless the recipe has one price, or one for each machine."""
    prices = history.setting("money", "price_per_hour") or []
    hosts = len(history.hosts)
    if len(prices) == 1:
        return HourlyCost(prices[0] * hosts, history.setting("money", "currency"))
    if prices and len(prices) == hosts:
        return HourlyCost(sum(prices), history.setting("money", "currency"))
    return None
