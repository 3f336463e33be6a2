"""Whether a run still gets better: the best values so far, and for how long none was bettered."""

from dataclasses import replace

from dragoman.events import EvaluationDone
from dragoman.training import checkpoint
from dragoman.training.checkpoint import TrainingState

HIGHER_IS_BETTER = frozenset({"bleu", "chrf"})
_LINKS = {"loss": checkpoint.BEST_LOSS, "bleu": checkpoint.BEST_BLEU}


def take_in(state: TrainingState, done: EvaluationDone, patience_metric: str) -> tuple[TrainingState, list[str]]:
    """The state after an evaluation, and the links that this step's checkpoint has earned."""
    values = {"loss": done.nll, "bleu": done.bleu, "chrf": done.chrf}
    better = {name: value for name, value in values.items() if value is not None and _betters(state, name, value)}
    stale = 0 if patience_metric in better else state.stale_evaluations + 1
    after = replace(state, best={**state.best, **better}, loss=done.nll, stale_evaluations=stale)
    return after, [link for name, link in _LINKS.items() if name in better]


def _betters(state: TrainingState, metric: str, value: float) -> bool:
    known = state.best.get(metric)
    if known is None:
        return True
    return value > known if metric in HIGHER_IS_BETTER else value < known
