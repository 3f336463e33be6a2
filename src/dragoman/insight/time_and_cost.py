"""Remaining time of a run, and its cost."""

from dataclasses import dataclass

from dragoman.insight.run_history import RunHistory
from dragoman.telemetry.remaining_time import RECENT_STEPS, WARM_UP_STEPS, RemainingTime, RunWork


def estimate_remaining_time(history: RunHistory) -> RemainingTime | None:
    """Estimate from the latest steps of this session, evaluations and checkpoints; None until enough is measured."""
    started = history.started
    warm_up_end = started.resumed_step + WARM_UP_STEPS
    steps = [done for done in history.steps[-RECENT_STEPS:] if done.step > warm_up_end]
    work = RunWork.of(history.total_steps, started.settings)
    return work.remaining_time(history.step, started.resumed_step, steps, history.evaluations, history.checkpoints)


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
