"""Forgetting: a set of `--also-evaluate` gets worse while the validation set, of the new domain, gets better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dragoman.events import EvaluationDone
from dragoman.insight.answer import Answer
from dragoman.insight.fine_tuning import find_trade_off
from dragoman.insight.run_history import RunHistory
from dragoman.insight.validation_curve import find_upturn
from dragoman.number_format import count

MIN_RISE = 0.01
"""Part of the lowest loss on a set by which it must rise again to count as forgetting."""


@dataclass(frozen=True)
class ForgottenSet:
    """An evaluation set, with its loss at its best evaluation and at the last one."""

    name: str
    best: EvaluationDone
    last: EvaluationDone
    best_loss: float
    last_loss: float

    def __str__(self) -> str:
        """Scores on this set and on the validation set, at its best evaluation and now."""
        scores = [f"{self.name}: loss {self.best_loss:.3f} at step {count(self.best.step)}, {self.last_loss:.3f} now"]
        before, now = self.best.sets[self.name]["bleu"], self.last.sets[self.name]["bleu"]
        for name, earlier, later in ((self.name, before, now), ("validation", self.best.bleu, self.last.bleu)):
            if earlier is not None and later is not None:
                scores.append(f"{name} BLEU {earlier:.1f}, {later:.1f} now")
        return "; ".join(scores)


def diagnose_forgetting(history: RunHistory) -> Iterator[Answer]:
    """A warning of the set whose loss has risen most, with all others in the evidence."""
    names = history.evaluations[-1].sets if history.evaluations else ()
    found = [forgotten for name in names if (forgotten := _find_forgotten(history.evaluations, name)) is not None]
    if found:
        worst = max(found, key=lambda each: each.last_loss - each.best_loss)
        best, last, step = worst.best, worst.last, count(worst.best.step)
        yield Answer(
            "forgetting",
            "Does it forget what it could do before?",
            f"Yes, since step {step}: the loss on {worst.name} rose from {worst.best_loss:.3f} to "
            f"{worst.last_loss:.3f}, while the validation loss fell from {best.nll:.3f} to {last.nll:.3f}.",
            [str(each) for each in found],
            remedy="Mix the old data in, as in `--data new --data old@0.3`, or more of it. If the old matters more "
            f"than what was gained since, use {_describe_alternative(history, worst.best)}.",
            is_warning=True,
        )


def _describe_alternative(history: RunHistory, best: EvaluationDone) -> str:
    """A checkpoint that has forgotten less: the best trade-off, if it is known and not the last."""
    trade_off = find_trade_off(history)
    if trade_off is not None and 0 < trade_off.step < history.evaluations[-1].step:
        return f"the best trade-off, `checkpoints/best-trade-off` (step {count(trade_off.step)})"
    return f"a checkpoint of about step {count(best.step)}" if best.step else "the model that the run began with"


def _find_forgotten(evaluations: Sequence[EvaluationDone], name: str) -> ForgottenSet | None:
    """The set, if its loss has risen since its best evaluation and the validation loss has fallen."""
    known = [(done, loss) for done in evaluations if (loss := done.sets.get(name, {}).get("nll")) is not None]
    upturn = find_upturn([loss for _, loss in known], MIN_RISE)
    if upturn is None:
        return None
    (best, best_loss), (last, last_loss) = known[upturn.index], known[-1]
    return ForgottenSet(name, best, last, best_loss, last_loss) if last.nll < best.nll else None
