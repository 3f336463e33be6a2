"""When a run will be done, and what it costs."""

import math
from dataclasses import dataclass
from statistics import fmean

from dragoman.insight.run_history import RunHistory

RECENT_STEPS = 200
RECENT_EVALUATIONS = 3


@dataclass(frozen=True)
class Left:
    """What is still to come."""

    steps_s: float
    evaluations_s: float
    checkpoints_s: float

    @property
    def total_s(self) -> float:
        return self.steps_s + self.evaluations_s + self.checkpoints_s


def time_left(story: RunHistory) -> Left | None:
    """From the latest steps, evaluations and checkpoints; None before the first step."""
    if not story.steady:
        return None
    steps_left = max(0, story.total_steps - story.step)
    step_s = fmean(step.step_s for step in story.steady[-RECENT_STEPS:])
    every = story.setting("evaluation", "every")
    # An average of checkpoints is judged like they were.
    evaluations_left = _left(story, every) + bool(story.setting("checkpoint", "average") and steps_left)
    evaluation_s = _mean([done.evaluation_s for done in story.evaluations[-RECENT_EVALUATIONS:]])
    saves_left = _left(story, story.setting("checkpoint", "every"))
    stall_s = _mean([saved.stall_s for saved in story.checkpoints[-RECENT_EVALUATIONS:]])
    return Left(steps_left * step_s, evaluations_left * evaluation_s, max(saves_left, evaluations_left) * stall_s)


def _left(story: RunHistory, every: int | None) -> int:
    if not every or story.step >= story.total_steps:
        return 0
    return math.ceil(story.total_steps / every) - story.step // every


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0


@dataclass(frozen=True)
class Cost:
    """Money, in the recipe's currency."""

    per_hour: float
    currency: str

    def of(self, seconds: float) -> float:
        return self.per_hour * seconds / 3600

    def words(self, seconds: float) -> str:
        return f"{self.of(seconds):,.2f} {self.currency}"


def cost_of(story: RunHistory) -> Cost | None:
    """What all machines cost an hour; None where the recipe names no price for each."""
    prices = story.setting("money", "price_per_hour") or []
    hosts = len(story.hosts)
    if len(prices) == 1:
        return Cost(prices[0] * hosts, story.setting("money", "currency"))
    return Cost(sum(prices), story.setting("money", "currency")) if prices and len(prices) == hosts else None
