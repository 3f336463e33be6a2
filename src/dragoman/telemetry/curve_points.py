"""The curves of a run: the scalars of each step and evaluation, for TensorBoard and experiment trackers."""

from collections.abc import Iterable
from dataclasses import dataclass

from dragoman.events import EvaluationDone, Event, StepDone

DENSE_CURVE_STEPS = 10_000
"""Curves have every step up to this one, later every second, third, and so on: a chart shows a thousand points."""


def is_on_curve(step: int) -> bool:
    return step % (1 + step // DENSE_CURVE_STEPS) == 0


def step_scalars(event: StepDone) -> dict[str, float]:
    return {
        "train/loss": event.loss,
        "train/learning_rate": event.learning_rate,
        "train/gradient_norm": event.gradient_norm,
        "speed/step_s": event.step_s,
        "speed/tokens_per_s": (event.source_tokens + event.target_tokens) / event.step_s,
    }


def evaluation_scalars(event: EvaluationDone) -> dict[str, float]:
    """Scores on the validation set, such as `eval/bleu`, and beside them those on other sets: `eval/bleu/news`."""
    scores = {"loss": event.loss, "perplexity": event.perplexity, "bleu": event.bleu, "chrf": event.chrf}
    named = {f"eval/{key}": value for key, value in scores.items()}
    for name, others in event.sets.items():
        named |= {f"eval/{key}/{name}": others[key] for key in ("loss", "bleu", "chrf")}
    return {tag: value for tag, value in named.items() if value is not None}


@dataclass(frozen=True)
class CurvePoint:
    """All scalars of one step."""

    step: int
    at_s: float
    scalars: dict[str, float]


class CurveBuffer:
    """Points that wait to be sent, by step. A step and its evaluation are one point."""

    def __init__(self) -> None:
        self._points: dict[int, CurvePoint] = {}
        self._evaluated: set[int] = set()

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, StepDone):
                self._merge(event.step, event.at_s, step_scalars(event))
            elif isinstance(event, EvaluationDone):
                self._merge(event.step, event.at_s, evaluation_scalars(event))
                self._evaluated.add(event.step)

    def _merge(self, step: int, at_s: float, scalars: dict[str, float]) -> None:
        earlier = self._points.get(step)
        self._points[step] = CurvePoint(step, at_s, ({} if earlier is None else earlier.scalars) | scalars)

    def ready(self, after_step: int, *, is_complete: bool) -> list[CurvePoint]:
        """Points of later steps, in order. Unless the run is complete, the newest waits: its evaluation may follow."""
        newest = max(self._points, default=0)
        for step in list(self._points):
            if step <= after_step or not (is_on_curve(step) or step in self._evaluated or step == newest):
                del self._points[step]
        return [self._points[step] for step in sorted(self._points) if is_complete or step < newest]
