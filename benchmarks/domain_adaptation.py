"""A europarl model adapted to Multi30k, with and without the old data, and learning curves, through the commands.

Sections of `benchmarks.fine_tuning`. Data sets, runs and scores stay in the work folder: an interrupted benchmark is
repeated with the same options and resumes. Commands that do not depend on each other share the device at the same time.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.corpora import EUROPARL, MULTI30K, NEWSTEST, read_split, split_files
from benchmarks.forked_commands import ForkedCommand, call_forked, start_forked
from benchmarks.reporting import Figure
from dragoman.decoding.model_choice import find_model
from dragoman.files import write_atomic
from dragoman.insight.data_forecast import CurvePart, LearningCurve
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import load_model
from dragoman.recipe import show_value
from dragoman.training.start_model import DROPOUTS

PARTS = (0.05, 0.1, 0.2, 0.4, 1)
"""Parts of the pairs of a learning curve; the last one is forecast from the others."""
CAPTIONS, NEWS = (MULTI30K, "test2016"), (NEWSTEST, "newstest2014")
"""Test sets of the new and of the old domain."""


@dataclass(frozen=True)
class Adaptation:
    """Data sets and runs of the comparison, each made when it is first needed."""

    corpora: Path
    work: Path
    base_recipe: str
    recipe: str
    """Of the adaptations, of the runs from scratch and of the learning curves."""
    base: Path | None
    """A europarl model to begin with; None to train one."""
    base_steps: int
    steps: int
    curve_corpora: Sequence[str]
    """Of europarl and multi30k."""
    curve_steps: int
    curve_tokens: int
    """Tokens of a batch in the learning curve of europarl. With few of them, no pair of its largest parts would be used
    twice, and they would teach as much as each other."""
    old_weights: Sequence[float]
    """Of europarl beside Multi30k, one for each run: how often each pair of it is used in an epoch."""
    pairs: int
    """Training pairs of each corpus to use; 0: all."""
    parallel: int
    """Commands that may share the device at the same time."""

    @cached_property
    def europarl(self) -> Path:
        tokenizer = ["--tokenizer", self.base] if self.base is not None else []
        return self._prepare("europarl", EUROPARL, *tokenizer)

    @cached_property
    def start(self) -> Path:
        if self.base is not None:
            return self.base
        self._train("base", self.base_recipe, self.base_steps, "--data", self.europarl).wait()
        return self.work / "base"

    @cached_property
    def multi30k(self) -> Path:
        return self._prepare("multi30k", MULTI30K, "--tokenizer", self.start)

    @cached_property
    def runs(self) -> dict[str, Path]:
        """From scratch, adapted to Multi30k alone, and adapted with the old data at each weight; trained together."""
        adapted: tuple[str | Path, ...] = ("--from", self.start, "--data", self.multi30k, *self._also_news)
        scratch = ("--data", self.multi30k, f"schedule.warmup_steps={max(1, self.steps // 5)}")
        options: dict[str, Sequence[str | Path]] = {
            "scratch": scratch,
            "scratch-same-architecture": (*scratch, *architecture_overrides(self.start)),
            "adapted": adapted,
            **{mixed_name(each): (*adapted, "--data", f"{self.europarl}@{each}") for each in self.old_weights},
        }
        self._run(self._train(name, self.recipe, self.steps, *each) for name, each in options.items())
        return {name: self.work / name for name in options}

    def bleu(self, models: Sequence[Path], corpus: str, split: str) -> list[float]:
        """The scores of models on a test set, all at the same time."""
        source, reference = self._text(corpus, split)

        def score(model: Path) -> ForkedCommand:
            log = self.work / f"score-{model.name}-{split}.log"
            return start_forked(log, "score", model, "--src", source, "--ref", reference, "--json")

        return [float(found["bleu"]["value"]) for found in self._read(map(score, models))]

    def learning_curves(self) -> dict[str, LearningCurve]:
        """Of the chosen corpora, trained at the same time."""
        every = max(1, self.curve_steps // 8)
        settings = [f"training.steps={self.curve_steps}", f"evaluation.every={every}", "evaluation.bleu=false"]

        def start(data: Path, *further: str) -> ForkedCommand:
            options = ("--out", self.work / f"curve-{data.name}", "--parts", ",".join(map(str, PARTS)), "--json")
            log = self.work / f"curve-{data.name}.log"
            return start_forked(log, "learning-curve", self.recipe, "--data", data, *options, *settings, *further)

        data: dict[Path, Sequence[str]] = {}
        if "europarl" in self.curve_corpora:
            data[self.europarl] = (f"batch.tokens={self.curve_tokens}",)
        if "multi30k" in self.curve_corpora:
            data[self.multi30k] = ()
        found = self._read(start(path, *further) for path, further in data.items())
        return {
            path.name: LearningCurve([CurvePart(**part) for part in curve["parts"]])
            for path, curve in zip(data, found, strict=True)
        }

    def _run(self, commands: Iterable[ForkedCommand]) -> list[str]:
        """The output of commands, of which at most `parallel` run at the same time: they start as they are taken."""
        outputs: list[str] = []
        running: list[ForkedCommand] = []
        for command in commands:
            running.append(command)
            if len(running) == self.parallel:
                outputs.append(running.pop(0).wait())
        return outputs + [command.wait() for command in running]

    def _read(self, commands: Iterable[ForkedCommand]) -> list[Any]:
        """The JSON that commands print, which warnings may precede."""
        return [json.JSONDecoder().raw_decode(text, text.index("{\n"))[0] for text in self._run(commands)]

    @property
    def _also_news(self) -> Sequence[str]:
        return ("--also-evaluate", f"news={','.join(map(str, self._text(NEWSTEST, 'newstest2013')))}")

    def _prepare(self, name: str, corpus: str, *options: str | Path) -> Path:
        out = self.work / name
        valid = ",".join(map(str, self._text(corpus, "valid", 1000)))
        train = self._text(corpus, "train", self.pairs) if self.pairs else split_files(corpus, "train", self.corpora)
        words = ("prepare", *train, "--valid", valid, "--recipe", self.base_recipe, "--out", out, *options)
        start_forked(self.work / f"prepare-{name}.log", *words).wait()
        return out

    def _text(self, corpus: str, split: str, lines: int = 0) -> tuple[Path, Path]:
        """The first lines of a split as plain files. Existing ones are not touched: data sets were made from them."""
        files = self.work / f"{corpus}.{split}.en", self.work / f"{corpus}.{split}.de"
        if not all(path.exists() for path in files):
            for path, text in zip(files, read_split(corpus, split, self.corpora), strict=True):
                write_atomic(path, "".join(f"{line}\n" for line in text[: lines or None]).encode())
        return files

    def _train(self, name: str, recipe: str, steps: int, *options: str | Path) -> ForkedCommand:
        """Start a run. It evaluates in the middle and at the end; the checkpoint with the better BLEU counts."""
        settings = (f"training.steps={steps}", f"evaluation.every={max(1, steps // 2)}")
        out = ("--out", self.work / name)
        return start_forked(self.work / f"train-{name}.log", "train", recipe, *out, *options, *settings)


def architecture_overrides(model: Path) -> list[str]:
    """The architecture of a model as settings, but for dropout, which adaptations take from their recipe, too."""
    # Not in this process: threads that it started would be missing in its forked children.
    shape = call_forked(read_architecture, model).model_dump(exclude={"vocabulary", *DROPOUTS})
    return [f"model.{name}={show_value(value)}" for name, value in shape.items()]


def read_architecture(model: Path) -> Architecture:
    return load_model(find_model(model)).description.architecture


def mixed_name(weight: float) -> str:
    return f"mixed-{weight}"


def measure_adaptation(bench: Adaptation) -> Iterator[Figure]:
    """Multi30k's test2016: the europarl model, adapted, against from scratch, after the same number of steps."""
    scratch = {
        f"the architecture of `{bench.recipe}`": bench.runs["scratch"],
        "the architecture of the europarl model": bench.runs["scratch-same-architecture"],
    }
    before, adapted, *others = bench.bleu([bench.start, bench.runs["adapted"], *scratch.values()], *CAPTIONS)
    yield Figure("test2016 BLEU of the europarl model", f"{before:.2f}", "", before)
    how = f"after {bench.steps} steps of `{bench.recipe}` on Multi30k"
    yield Figure(f"test2016 BLEU {how}, from the europarl model", f"{adapted:.2f}", "", adapted)
    for name, bleu in zip(scratch, others, strict=True):
        yield Figure(f"test2016 BLEU {how}, from scratch with {name}", f"{bleu:.2f}", "", bleu)
        yield Figure(f"gained by the start, against {name}", f"{adapted - bleu:+.2f}", "+3", adapted - bleu)


def measure_forgetting(bench: Adaptation) -> Iterator[Figure]:
    """newstest2014 before the adaptation, and after it without and with the old data."""
    adapted = [bench.runs["adapted"], *(bench.runs[mixed_name(weight)] for weight in bench.old_weights)]
    before, *news = bench.bleu([bench.start, *adapted], *NEWS)
    captions = bench.bleu(adapted, *CAPTIONS)
    yield Figure("newstest2014 BLEU of the europarl model", f"{before:.2f}", "", before)
    data = ["Multi30k alone", *(f"Multi30k and europarl@{weight}" for weight in bench.old_weights)]
    for name, on_news, on_captions in zip(data, news, captions, strict=True):
        text = f"{on_news:.2f} ({on_news - before:+.2f}); {on_captions:.2f}"
        target = "loses more" if name == data[0] else "-0.5"
        yield Figure(
            f"adapted with {name}: newstest2014; test2016", text, target, [on_news, on_news - before, on_captions]
        )


def measure_curves(bench: Adaptation) -> Iterator[Figure]:
    """The loss of the run on all pairs, forecast from those on parts of them."""
    for name, curve in bench.learning_curves().items():
        *known, largest = curve.parts
        forecast = LearningCurve(known).forecast(largest.pairs)
        interval = "no forecast" if forecast is None else f"{forecast.low:.3f} to {forecast.high:.3f}"
        is_inside = forecast is not None and forecast.low <= largest.nll <= forecast.high
        losses = ", ".join(f"{part.nll:.3f}" for part in known)
        yield Figure(
            f"{name}: loss of the run on all {largest.pairs:,} pairs, and its forecast from those on "
            f"{', '.join(f'{part.pairs:,}' for part in known)} ({losses})",
            f"{largest.nll:.3f} {'in' if is_inside else 'not in'} {interval}", "in",
            [is_inside, [[part.pairs, part.nll] for part in curve.parts]],
        )  # fmt: skip


SECTIONS: dict[str, Callable[[Adaptation], Iterator[Figure]]] = {
    "adapt": measure_adaptation,
    "forget": measure_forgetting,
    "curve": measure_curves,
}
