"""Early stopping: the best validation values so far, the number of evaluations without a better one, and the end."""

import math
from dataclasses import replace

from dragoman.events import EvaluationDone
from dragoman.settings import EvaluationSettings, Settings
from dragoman.telemetry.score_gains import net_gain, read_gains
from dragoman.training import checkpoint
from dragoman.training.snapshot import TrainingState

HIGHER_IS_BETTER = frozenset({"bleu", "chrf", "net_gain"})
_LINKS = {"loss": checkpoint.BEST_LOSS, "bleu": checkpoint.BEST_BLEU, "net_gain": checkpoint.BEST_TRADE_OFF}


def update_best(
    state: TrainingState, evaluation: EvaluationDone, patience_metric: str
) -> tuple[TrainingState, list[str]]:
    """The state after an evaluation, and the links (such as best-loss) that move to this step's checkpoint."""
    values = {
        "loss": evaluation.nll,
        "bleu": evaluation.bleu,
        "chrf": evaluation.chrf,
        "net_gain": _net_gain(evaluation),
    }
    # No comparison with NaN is true: as the first value, it would stay the best for ever.
    finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    better = {name: value for name, value in finite.items() if _is_better(state, name, value)}
    stale = 0 if patience_metric in better else state.stale_evaluations + 1
    after = replace(state, best={**state.best, **better}, loss=finite.get("loss"), stale_evaluations=stale)
    return after, [link for name, link in _LINKS.items() if name in better]


def _net_gain(evaluation: EvaluationDone) -> float | None:
    """See `net_gain`. The model that the run began with has gained nothing."""
    translates_others = any(scores.get("bleu") is not None for scores in evaluation.sets.values())
    return 0.0 if evaluation.step == 0 and translates_others else net_gain(read_gains(evaluation.gains))


def reason_to_end(state: TrainingState, settings: Settings) -> str | None:
    """The reason to end a run before its next step, also if it had ended before and is started again."""
    if patience_exhausted(state, settings.evaluation):
        return "patience"
    return "finished" if state.step >= settings.training.steps else None


def patience_exhausted(state: TrainingState, settings: EvaluationSettings) -> bool:
    return bool(settings.patience) and state.stale_evaluations >= settings.patience


def _is_better(state: TrainingState, metric: str, value: float) -> bool:
    best = state.best.get(metric)
    if best is None or not math.isfinite(best):
        return True
    return value > best if metric in HIGHER_IS_BETTER else value < best
