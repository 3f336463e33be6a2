"""The current speed of a run, for its terminal and its log."""

from collections import deque

from dragoman import events
from dragoman.events import Event
from dragoman.settings import Settings
from dragoman.telemetry.remaining_time import RECENT_EVALUATIONS, RECENT_STEPS, WARM_UP_STEPS, RemainingTime, RunWork


class ThroughputMeter:
    """Current speed of a run, and the time that its remaining steps, evaluations and checkpoints will take."""

    def __init__(self, settings: Settings) -> None:
        self._work = RunWork.of(settings.training.steps, settings.model_dump(mode="json"))
        self._steps: deque[events.StepDone] = deque(maxlen=RECENT_STEPS)
        self._evaluations: list[events.EvaluationDone] = []
        self._checkpoints: deque[events.CheckpointSaved] = deque(maxlen=RECENT_EVALUATIONS)
        self._seen = 0
        self._resumed_step = 0

    def record(self, event: Event) -> None:
        if isinstance(event, events.RunStarted):
            self._resumed_step = event.resumed_step
        elif isinstance(event, events.StepDone):
            self._seen += 1
            if self._seen <= WARM_UP_STEPS + 1:
                self._steps.clear()  # Of the first steps only the latest one is shown.
            self._steps.append(event)
        elif isinstance(event, events.EvaluationDone):
            self._evaluations.append(event)
        elif isinstance(event, events.CheckpointSaved):
            self._checkpoints.append(event)

    @property
    def tokens_per_s(self) -> float:
        """Source and target tokens a second over the latest steps."""
        tokens = sum(done.source_tokens + done.target_tokens for done in self._steps)
        return tokens / max(1e-9, sum(done.step_s for done in self._steps))

    @property
    def remaining_time(self) -> RemainingTime | None:
        """Time to the end of the run; None until enough steps are measured."""
        if not self._steps:
            return None
        records = list(self._steps), self._evaluations, list(self._checkpoints)
        return self._work.remaining_time(self._steps[-1].step, self._resumed_step, *records)
