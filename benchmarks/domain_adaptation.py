"""A europarl model adapted to Multi30k, with and without the old data, and learning curves, through the commands.

Sections of `benchmarks.fine_tuning`. Runs stay in the work folder and resume, so that sections can be measured one by
one.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.command_line import dragoman_command, run_dragoman
from benchmarks.corpora import EUROPARL, MULTI30K, NEWSTEST, read_split, split_files
from benchmarks.reporting import Figure
from dragoman.insight.data_forecast import CurvePart, LearningCurve

PARTS = (0.03, 0.1, 0.33, 1)
"""Parts of the pairs of a learning curve; the last one is forecast from the others."""


@dataclass(frozen=True)
class Adaptation:
    """Data sets and runs of the comparison, each made when it is first needed."""

    corpora: Path
    work: Path
    recipe: str
    base: Path | None
    """A europarl model to begin with; None to train one."""
    base_steps: int
    steps: int
    curve_steps: int
    old_weight: float
    """Weight of europarl beside Multi30k."""
    pairs: int
    """Training pairs of europarl to use; 0: all."""

    @cached_property
    def europarl(self) -> Path:
        out = self.work / "europarl"
        tokenizer = ["--tokenizer", self.base] if self.base is not None else []
        self._prepare(EUROPARL, out, *tokenizer)
        return out

    @cached_property
    def start(self) -> Path:
        if self.base is not None:
            return self.base
        return self._train("base", self.base_steps, "--data", self.europarl)

    @cached_property
    def multi30k(self) -> Path:
        out = self.work / "multi30k"
        self._prepare(MULTI30K, out, "--tokenizer", self.start)
        return out

    @cached_property
    def adapted(self) -> Path:
        return self._train("adapted", self.steps, "--from", self.start, "--data", self.multi30k, *self._also_news)

    @cached_property
    def scratch(self) -> Path:
        warmup = f"schedule.warmup_steps={max(1, self.steps // 5)}"
        return self._train("scratch", self.steps, "--data", self.multi30k, warmup)

    @cached_property
    def mixed(self) -> Path:
        old = f"{self.europarl}@{self.old_weight}"
        data = ("--data", self.multi30k, "--data", old)
        return self._train("mixed", self.steps, "--from", self.start, *data, *self._also_news)

    @property
    def _also_news(self) -> Sequence[str]:
        return ("--also-evaluate", f"news={','.join(map(str, self._text(NEWSTEST, 'newstest2013')))}")

    def _prepare(self, corpus: str, out: Path, *options: str | Path) -> None:
        valid = ",".join(map(str, self._text(corpus, "valid", 1000)))
        train = self._text(corpus, "train", self.pairs) if self.pairs else split_files(corpus, "train", self.corpora)
        run_dragoman("prepare", *train, "--valid", valid, "--recipe", self.recipe, "--out", out, *options)

    def _text(self, corpus: str, split: str, lines: int = 0) -> tuple[Path, Path]:
        """The first lines of a split as plain files."""
        written = []
        for language, text in zip(("en", "de"), read_split(corpus, split, self.corpora), strict=True):
            path = self.work / f"{corpus}.{split}.{language}"
            path.write_text("".join(f"{line}\n" for line in text[: lines or None]), encoding="utf-8")
            written.append(path)
        return written[0], written[1]

    def _train(self, name: str, steps: int, *options: str | Path) -> Path:
        every = f"evaluation.every={max(1, steps // 5)}"
        out = self.work / name
        run_dragoman("train", self.recipe, "--out", out, *options, f"training.steps={steps}", every)
        return out

    def bleu(self, model: Path, corpus: str, split: str) -> float:
        source, reference = self._text(corpus, split)
        found = _json_of("score", model, "--src", source, "--ref", reference, "--json")
        return float(found["bleu"]["value"])

    def learning_curve(self, data: Path) -> LearningCurve:
        found = _json_of(
            "learning-curve", self.recipe, "--data", data, "--out", self.work / f"curve-{data.name}", "--parts",
            ",".join(map(str, PARTS)), f"training.steps={self.curve_steps}",
            f"evaluation.every={max(1, self.curve_steps // 8)}", "evaluation.bleu=false",
            "checkpoint.average=0", "--json",
        )  # fmt: skip
        return LearningCurve([CurvePart(**part) for part in found["parts"]])


def _json_of(*arguments: str | Path) -> Any:
    process = subprocess.run(dragoman_command(*arguments), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(process.stdout)


def measure_adaptation(bench: Adaptation) -> Iterator[Figure]:
    """Multi30k's test2016: the europarl model, adapted, against from scratch, after the same number of steps."""
    before, adapted, scratch = (
        bench.bleu(model, MULTI30K, "test2016") for model in (bench.start, bench.adapted, bench.scratch)
    )
    yield Figure("test2016 BLEU of the europarl model", f"{before:.2f}", "", before)
    yield Figure(f"after {bench.steps} steps from scratch", f"{scratch:.2f}", "", scratch)
    yield Figure(f"after {bench.steps} steps from the europarl model", f"{adapted:.2f}", "", adapted)
    yield Figure("gained by the start", f"{adapted - scratch:+.2f}", "+3", adapted - scratch)


def measure_forgetting(bench: Adaptation) -> Iterator[Figure]:
    """newstest2014 before the adaptation, and after it without and with the old data."""
    before = bench.bleu(bench.start, NEWSTEST, "newstest2014")
    yield Figure("newstest2014 BLEU of the europarl model", f"{before:.2f}", "", before)
    for name, run, target in (("Multi30k alone", bench.adapted, ""), ("Multi30k and europarl", bench.mixed, "-0.5")):
        after, own = bench.bleu(run, NEWSTEST, "newstest2014"), bench.bleu(run, MULTI30K, "test2016")
        yield Figure(
            f"adapted with {name}: newstest2014", f"{after:.2f} ({after - before:+.2f})", target, after - before
        )
        yield Figure(f"adapted with {name}: test2016", f"{own:.2f}", "", own)


def measure_curves(bench: Adaptation) -> Iterator[Figure]:
    """The loss of the run on all pairs, forecast from those on parts of them."""
    for data in (bench.europarl, bench.multi30k):
        curve = bench.learning_curve(data)
        *known, largest = curve.parts
        forecast = LearningCurve(known).forecast(largest.pairs)
        interval = "no forecast" if forecast is None else f"{forecast.low:.3f} to {forecast.high:.3f}"
        is_inside = forecast is not None and forecast.low <= largest.nll <= forecast.high
        found = f"{largest.nll:.3f} {'in' if is_inside else 'not in'} {interval}"
        yield Figure(f"{data.name}: loss with all pairs, and its forecast", found, "in", [is_inside, largest.nll])
