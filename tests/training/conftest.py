"""The means to train in the process of a test."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import join_cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import Event
from dragoman.model.transformer import Transformer
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.training.evaluation import Quality
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..small import TINY

E = TypeVar("E", bound=Event)


def tiny(*overrides: str) -> Settings:
    return resolve(None, [*TINY, *overrides]).settings


class Parrot:
    """A scorer that translates nothing: its scores are given, or count its calls."""

    def __init__(self, scores: Sequence[float] = ()) -> None:
        self.scores = list(scores)
        self.asked = 0

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        return list(lines)

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Quality:
        self.asked += 1
        value = self.scores[self.asked - 1] if self.scores else float(self.asked)
        return Quality(value, "bleu", value, "chrf")


class Recording:
    """One session of a run in this process, and what it recorded."""

    def __init__(self, settings: Settings, data: DataSet, folder: Path, scorer: Parrot | None = None) -> None:
        self.events: list[Event] = []
        self.stop = StopSignal()
        self.run = RunFolder(folder)
        self.trainer = Trainer(
            settings, data, self.run, join_cluster(), scorer or Parrot(), self.record, EventSync(self.run)
        )
        self.on_event = lambda event: None

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def train(self) -> str:
        return self.trainer.train(self.stop)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]
