"""A small data set and the means to train on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from dragoman.config import Settings, resolve
from dragoman.corpus import demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.prepare import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.events import Event
from dragoman.model.transformer import Transformer
from dragoman.rundir import RunDir
from dragoman.training.cluster import Cluster
from dragoman.training.evaluate import Quality
from dragoman.training.loop import Trainer
from dragoman.training.stop import Stop

E = TypeVar("E", bound=Event)

TINY = [
    "batch.tokens=200", "model.d_model=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1",
    "model.feed_forward=64", "model.dropout=0.1", "training.steps=12", "evaluation.every=5", "checkpoint.every=4",
    "evaluation.sentences=4", "schedule.policy=constant", "schedule.rate=0.003", "schedule.warmup_steps=2",
]  # fmt: skip


def tiny(*overrides: str) -> Settings:
    return resolve(None, [*TINY, *overrides]).settings


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    folder = tmp_path_factory.mktemp("data")
    made = demo.generate(1500, seed=2, valid=60, test=1)
    for name, pairs in (("train", made.train), ("valid", made.valid)):
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train, valid = (Source(name, (folder / f"{name}.tsv",), "tsv") for name in ("train", "valid"))
    corpus = Corpus("demo", Languages("en", "de"), (train,), (valid,), ())
    prepare(corpus, folder / "data", resolve(None, ["tokenizer.vocabulary=400"]).settings, workers=1)
    return DataSet(folder / "data")


class Parrot:
    """A judge that translates nothing: scores come from the number of times it was asked, rising or as told."""

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

    def __init__(self, settings: Settings, data: DataSet, folder: Path, judge: Parrot | None = None) -> None:
        self.events: list[Event] = []
        self.stop = Stop()
        self.run = RunDir(folder)
        self.trainer = Trainer(settings, data, self.run, Cluster.join(), judge or Parrot(), self.record)
        self.on_event = lambda event: None

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def train(self) -> str:
        return self.trainer.train(self.stop)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]
