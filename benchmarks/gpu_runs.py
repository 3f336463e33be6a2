"""Runs and data sets of the GPU benchmark."""

import contextlib
import io
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.command_line import NO_EVALUATION, run_dragoman
from benchmarks.corpora import EUROPARL, LANGUAGES, MULTI30K, NEWSTEST, read_split, split_files
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.translator_loading import load
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.events import EvaluationDone, StepDone
from dragoman.launch import local_launcher
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.training.worker import TrainingJob


@dataclass(frozen=True)
class GpuRun:
    """A finished run of ours."""

    folder: Path
    wall_s: float
    """From the call to its return: compilation, training, a last evaluation of the loss, a checkpoint."""
    peak_bytes: int

    @property
    def steps(self) -> list[StepDone]:
        return [event for event in RunFolder(self.folder).events() if isinstance(event, StepDone)]

    @property
    def valid_nll(self) -> float:
        return next(event.nll for event in RunFolder(self.folder).events() if isinstance(event, EvaluationDone))

    def tokens_per_s(self, after: int) -> float:
        """Mean over all steps after the first ones."""
        steps = self.steps[after:]
        tokens = sum(step.source_tokens + step.target_tokens for step in steps[1:])
        return tokens / (steps[-1].at_s - steps[0].at_s)

    def translate(self, lines: Sequence[str], **decoding: Any) -> list[str]:
        return list(load(self.folder, **decoding).translate(lines))


@dataclass
class GpuBench:
    """Corpora, a folder for data and runs, and speeds that later sections compare with."""

    corpora: Path
    folder: Path
    seconds: float
    seeds: Sequence[int] = (1,)
    tokens_per_s: dict[int, float] = field(default_factory=dict)
    """Speed of transformer-base by tokens per side of a batch."""

    def read(self, corpus: str, split: str) -> tuple[list[str], list[str]]:
        return read_split(corpus, split, self.corpora)

    def prepare_europarl(self) -> DataSet:
        splits = [(EUROPARL, "train"), (EUROPARL, "valid"), (NEWSTEST, "newstest2014")]
        files = [split_files(corpus, split, self.corpora) for corpus, split in splits]
        return self._prepare("europarl", files, "transformer-base")

    def prepare_multi30k(self) -> DataSet:
        """Lowercased, as in published results."""
        files = []
        for split in ("train", "valid", "test2016"):
            english, german = (self.folder / f"{split}.{language}" for language in LANGUAGES)
            for path, lines in zip((english, german), self.read(MULTI30K, split), strict=True):
                path.write_text("".join(f"{line.lower()}\n" for line in lines), encoding="utf-8")
            files.append((english, german))
        return self._prepare("multi30k", files, "small", "tokenizer.vocabulary_size=8000")

    def _prepare(self, name: str, files: Sequence[tuple[Path, Path]], recipe: str, *settings: str) -> DataSet:
        out = self.folder / name
        if not out.exists():
            train, valid, test = files
            held_out = ["--valid", ",".join(map(str, valid)), "--test", ",".join(map(str, test))]
            run_dragoman("prepare", *train, *held_out, "-l", "en-de", "--recipe", recipe, "--out", out, *settings)
        return DataSet(out)

    def train(self, name: str, data: DataSet, recipe: str, *settings: str) -> GpuRun:
        folder = self.folder / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)  # A finished run would not train again.
        torch.compiler.reset()  # The state of a new process.
        torch.cuda.reset_peak_memory_stats()
        job = TrainingJob(resolve(recipe, [*NO_EVALUATION, *settings]).settings, data.path, folder)
        started_at = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            local_launcher.train(job, workers=1, make_scorer=make_scorer)
        return GpuRun(folder, time.perf_counter() - started_at, torch.cuda.max_memory_allocated())
