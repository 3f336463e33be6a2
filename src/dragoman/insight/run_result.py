"""The result of a run: its best checkpoint, with the scores on the validation set."""

import math
from dataclasses import dataclass

from dragoman.events import CheckpointsAveraged, EvaluationDone
from dragoman.insight.run_history import RunHistory
from dragoman.number_format import count


@dataclass(frozen=True)
class RunResult:
    """The best checkpoint by BLEU, or by validation loss where BLEU was not computed."""

    checkpoint: str
    """Its name in the run folder: `averaged`, `best-bleu` or `best-loss`."""
    step: int
    nll: float
    bleu: float | None
    chrf: float | None

    @property
    def scores(self) -> str:
        """BLEU and validation loss in words."""
        loss = f"validation loss {self.nll:.3f}"
        return loss if self.bleu is None else f"BLEU {self.bleu:.1f}, {loss}"

    def __str__(self) -> str:
        step = f"step {count(self.step)}" if self.step else "step 0, the starting model"
        return f"`checkpoints/{self.checkpoint}` ({step}, {self.scores})"


def find_result(history: RunHistory) -> RunResult | None:
    """The best checkpoint of a run, which may be the model that it began with; None before its first evaluation."""
    candidates = [
        RunResult("" if done.bleu is None else "best-bleu", done.step, done.nll, done.bleu, done.chrf)
        for done in history.evaluations
    ]
    # An average that was made before the run went on is no longer its result.
    candidates += [
        RunResult("averaged", averaged.step, averaged.nll, averaged.bleu, averaged.chrf)
        for averaged in history.incidents_of(CheckpointsAveraged)
        if averaged.step == history.step
    ]
    finite = [found for found in candidates if math.isfinite(found.nll)]
    scored = [found for found in finite if found.bleu is not None and math.isfinite(found.bleu)]
    if scored:
        return max(scored, key=lambda found: (found.bleu or 0.0, found.checkpoint == "averaged"))
    best = min(finite, key=lambda found: found.nll, default=None)
    return None if best is None else RunResult(best.checkpoint or "best-loss", best.step, best.nll, None, None)


def find_lowest_loss(history: RunHistory) -> EvaluationDone | None:
    """The evaluation with the lowest validation loss, of those after a step; averages of checkpoints are none.

    Runs are compared by it where only the loss counts: BLEU would add its noise to the choice.
    """
    finite = [done for done in history.trained_evaluations if math.isfinite(done.nll)]
    return min(finite, key=lambda done: done.nll, default=None)
