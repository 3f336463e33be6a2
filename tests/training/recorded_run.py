"""Training in the process of a test, with all events recorded."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import join_cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import Event, StepDone, StepSkipped
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.score_gains import Gain
from dragoman.training.evaluation import Quality, TranslationScorer
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

E = TypeVar("E", bound=Event)


class FakeScorer:
    """Returns the source as the translation, and the given scores; by default 1, 2, 3 and so on."""

    def __init__(self, scores: Sequence[float] = ()) -> None:
        self.scores = list(scores)
        self.calls = 0

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        return list(lines)

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Quality:
        self.calls += 1
        value = self.scores[self.calls - 1] if self.scores else float(self.calls)
        return Quality(value, "bleu", value, "chrf")

    def gain(self, before: Sequence[str], translations: Sequence[str], references: Sequence[str]) -> Gain:
        """One point for each line that differs."""
        changed = float(sum(old != new for old, new in zip(before, translations, strict=True)))
        return Gain(changed, changed - 0.5, changed + 0.5)


class RecordedRun:
    """A run from its start or resume to its end, and the events it recorded."""

    def __init__(
        self, settings: Settings, data: DataSet, folder: Path, scorer: TranslationScorer | None = None
    ) -> None:
        self.events: list[Event] = []
        self.stop = StopSignal()
        self.run = RunFolder(folder)
        self.trainer = Trainer(
            settings, data, self.run, join_cluster(), scorer or FakeScorer(), self.record, EventSync(self.run)
        )
        self.on_event = lambda event: None

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def train(self) -> str:
        return self.trainer.train(self.stop)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def losses(self) -> list[float]:
        return [event.loss for event in self.of(StepDone)]


def inject_nan_losses(monkeypatch: pytest.MonkeyPatch, steps: range, run: RecordedRun) -> None:
    """Replace the loss by NaN in some steps, counted over the whole run, skipped ones included."""
    forward = Transformer.forward

    def forward_with_nan(self, batch, smoothing=0.0):
        loss, nll = forward(self, batch, smoothing)
        done = len(run.of(StepDone)) + len(run.of(StepSkipped))
        return (loss * math.nan, nll) if self.training and done + 1 in steps else (loss, nll)

    monkeypatch.setattr(Transformer, "forward", forward_with_nan)
