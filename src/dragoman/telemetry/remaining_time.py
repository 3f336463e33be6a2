"""Time left in a run, estimated once for terminal, live page and report. "Measuring" until enough steps are known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dragoman.events import CheckpointSaved, EvaluationDone, StepDone
from dragoman.number_format import count, span

WARM_UP_STEPS = 5
"""First steps of a session. They compile, allocate memory and fill caches, so their times are not typical."""
MIN_STEPS = 2
"""Typical steps that an estimate needs."""
RECENT_STEPS = 200
RECENT_EVALUATIONS = 5
MEASURING = "measuring"
"""Shown instead of a time until there is an estimate."""


@dataclass(frozen=True)
class RemainingTime:
    """Time until the run ends."""

    steps_s: float
    evaluations_s: float
    checkpoints_s: float
    unmeasured_evaluations: int = 0
    """Evaluations still to come whose time is not known, because none was done yet."""

    @property
    def total_s(self) -> float:
        return self.steps_s + self.evaluations_s + self.checkpoints_s

    def __str__(self) -> str:
        if not self.unmeasured_evaluations:
            return span(self.total_s)
        evaluations = "evaluation" if self.unmeasured_evaluations == 1 else "evaluations"
        return f"{span(self.total_s)} plus {count(self.unmeasured_evaluations)} {evaluations}"


@dataclass(frozen=True)
class RunWork:
    """All steps of a run, and the intervals at which it evaluates and saves."""

    steps: int
    evaluate_every: int
    save_every: int
    averages: bool
    """Whether the average of checkpoints is evaluated at the end."""

    @classmethod
    def of(cls, steps: int, settings: Mapping[str, Any]) -> "RunWork":
        """The work that settings, as JSON, ask for. Those of older versions may lack some."""
        evaluation, checkpoint = settings.get("evaluation", {}), settings.get("checkpoint", {})
        return cls(
            steps,
            evaluate_every=evaluation.get("every") or steps,
            save_every=checkpoint.get("every") or steps,
            averages=bool(checkpoint.get("average")),
        )

    def remaining_time(
        self,
        step: int,
        resumed_step: int,
        steps: Sequence[StepDone],
        evaluations: Sequence[EvaluationDone],
        checkpoints: Sequence[CheckpointSaved],
    ) -> RemainingTime | None:
        """The time left after a step, from the latest measurements; None until there are enough.

        `resumed_step` is where this session began, `steps` are its steps without the first WARM_UP_STEPS. All are
        ordered by step.
        """
        # Steps that compiled are not typical: torch compiles the same code only a few times.
        times_s = [done.step_s for done in steps[-RECENT_STEPS:] if not done.compile_s]
        if len(times_s) < MIN_STEPS:
            return None
        # What is due after this very step is still to come, unless it is done.
        evaluations_left = self._evaluations(self.steps) - self._evaluations(step - 1) - _is_done(evaluations, step)
        checkpoints_left = self._checkpoints(self.steps) - self._checkpoints(step - 1) - _is_done(checkpoints, step)
        evaluations_left += self.averages
        evaluations_s = [done.evaluation_s for done in _typical_evaluations(evaluations, resumed_step)]
        stalls_s = [saved.stall_s for saved in checkpoints[-RECENT_EVALUATIONS:]]
        return RemainingTime(
            steps_s=max(0, self.steps - step) * fmean(times_s),
            evaluations_s=evaluations_left * fmean(evaluations_s) if evaluations_s else 0.0,
            checkpoints_s=checkpoints_left * fmean(stalls_s) if stalls_s else 0.0,
            unmeasured_evaluations=0 if evaluations_s else evaluations_left,
        )

    def _evaluations(self, step: int) -> int:
        """Evaluations up to a step; the last step is always evaluated."""
        is_extra = step == self.steps and step % self.evaluate_every > 0
        return step // self.evaluate_every + is_extra

    def _checkpoints(self, step: int) -> int:
        """Checkpoints up to a step. One is also saved after every evaluation."""
        is_extra = step == self.steps and step % self.evaluate_every > 0 and step % self.save_every > 0
        both = math.lcm(self.evaluate_every, self.save_every)
        return step // self.evaluate_every + step // self.save_every - step // both + is_extra


def _typical_evaluations(evaluations: Sequence[EvaluationDone], resumed_step: int) -> Sequence[EvaluationDone]:
    """The latest evaluations. The first of a session warms up, and counts only while there is no other."""
    # The model that a run begins with is evaluated at step 0.
    first = next((done for done in evaluations if done.step > resumed_step or done.step == resumed_step == 0), None)
    latest = evaluations[-RECENT_EVALUATIONS:]
    return [done for done in latest if done is not first] or latest


def _is_done(work: Sequence[EvaluationDone] | Sequence[CheckpointSaved], step: int) -> bool:
    return bool(work) and work[-1].step >= step


def describe_remaining_time(remaining: RemainingTime | None) -> str:
    """The time left in words, such as `5 min 20 s left`."""
    return f"time left: {MEASURING}" if remaining is None else f"{remaining} left"
