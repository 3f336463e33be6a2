"""Training speed on a CPU, compared with JoeyNMT, Eole and Marian: source and target tokens per second.

All train one model (d_model 256, 4 + 4 layers, 4 heads, tied embeddings, pre-norm) on Multi30k, in float32, with Adam,
4,096 target tokens per update, one process and the same number of threads. All read the same pieces of our tokenizer.
A token is counted in the same way for all: a piece, or one EOS for each side; padding never counts. Our speed is read
from the events of `dragoman train`. Runs alternate: ours, one of theirs, ours, the next. A speed is the median over
updates after a warm-up; a ratio is relative to our run just before. `peer_toolkits` lists the differences.

The first use installs each toolkit in its own virtual environment in the cache folder. Run it on an idle machine:
other load slows down threads that wait for each other more than proportionally.

    python -m benchmarks.training_speed [--updates 20] [--warmup 5] [--threads 2] [--rounds 1] [--only eole]
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import dragoman
from benchmarks import peer_toolkits
from benchmarks.command_line import NO_EVALUATION, make_parser, run_dragoman
from benchmarks.corpora import prepare_multi30k
from benchmarks.peer_toolkits import (
    ADAM,
    CLIP_NORM,
    TOOLKITS,
    WARMUP_STEPS,
    ModelSize,
    Toolkit,
    ToolkitError,
    TrainingTask,
    Update,
)
from benchmarks.reporting import print_json, print_row
from dragoman.corpus.dataset import DataSet
from dragoman.events import StepDone
from dragoman.run_folder import RunFolder


@dataclass(frozen=True)
class Speed:
    """Speed of one run."""

    tokens_per_s: float
    target_tokens: float
    """Target tokens of an update, on average."""

    @classmethod
    def of(cls, updates: Sequence[Update]) -> "Speed":
        rate = statistics.median(update.tokens_per_s for update in updates)
        return cls(rate, statistics.mean(update.target_tokens for update in updates))


@dataclass(frozen=True)
class ToolkitComparison:
    """A row of the table."""

    toolkit: str
    version: str = ""
    theirs: Sequence[Speed] = ()
    ours: Sequence[Speed] = ()
    """Our runs, each just before theirs."""
    problem: str = ""

    @property
    def ratio(self) -> float:
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs)


def main() -> None:
    parser = make_parser(__doc__, [toolkit.package for toolkit in TOOLKITS])
    parser.add_argument("--updates", type=int, default=20, help="measured updates of each run")
    parser.add_argument("--warmup", type=int, default=5, help="updates before the measured ones")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    # Subprocesses inherit it, and each toolkit uses as many threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    wanted = [toolkit for toolkit in TOOLKITS if toolkit.package in options.only]
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(wanted, options, Path(folder))
    report(rows, options)


def compare(wanted: Sequence[Toolkit], options: argparse.Namespace, folder: Path) -> list[ToolkitComparison]:
    """Install all toolkits, then train with each of them and with ours, alternating."""
    data = prepare_multi30k(folder / "data", "small")
    corpus = peer_toolkits.write_corpus(data, folder / "text")
    rows = {toolkit.package: ToolkitComparison(toolkit.package) for toolkit in wanted}
    programs: dict[str, Path] = {}
    for toolkit in wanted:
        name = toolkit.package
        try:
            programs[name] = peer_toolkits.install(toolkit)
            rows[name] = replace(rows[name], version=peer_toolkits.installed_version(toolkit, programs[name]))
        except ToolkitError as failure:
            rows[name] = replace(rows[name], problem=str(failure))
    for number in range(options.rounds):
        for toolkit in wanted:
            name = toolkit.package
            if rows[name].problem:
                continue
            out = folder / f"{name}-{number}"
            out.mkdir()
            task = TrainingTask(ModelSize(), corpus, options.warmup + options.updates, options.threads, out)
            ours = Speed.of(train_dragoman(data, task)[options.warmup :])
            print(f"dragoman: {ours.tokens_per_s:,.0f} tokens/s", flush=True)
            try:
                theirs = Speed.of(toolkit.train(programs[name], task)[options.warmup :])
            except ToolkitError as failure:
                rows[name] = ToolkitComparison(name, rows[name].version, problem=str(failure))
                continue
            print(f"{name}: {theirs.tokens_per_s:,.0f} tokens/s", flush=True)
            rows[name] = replace(rows[name], theirs=[*rows[name].theirs, theirs], ours=[*rows[name].ours, ours])
    return list(rows.values())


def train_dragoman(data: DataSet, task: TrainingTask) -> list[Update]:
    """Train with Dragoman. An update lasts from the end of the one before to its own end: the wait for data counts."""
    size = task.size
    settings = {
        "batch.tokens": size.target_tokens, "model.d_model": size.d_model, "model.heads": size.heads,
        "model.encoder_layers": size.layers, "model.decoder_layers": size.layers,
        "model.feed_forward": size.feed_forward, "model.dropout": size.dropout,
        "training.label_smoothing": size.label_smoothing, "training.precision": "fp32",
        "training.steps": task.updates + 1, "optimizer.beta1": ADAM["beta1"], "optimizer.beta2": ADAM["beta2"],
        "optimizer.epsilon": ADAM["epsilon"], "optimizer.clip_norm": CLIP_NORM,
        "schedule.learning_rate": ADAM["learning_rate"], "schedule.warmup_steps": WARMUP_STEPS,
    }  # fmt: skip
    overrides = [*NO_EVALUATION, *(f"{key}={value}" for key, value in settings.items())]
    out = task.folder / "dragoman"
    run_dragoman("train", "small", *overrides, "--data", data.path, "--out", out, "--workers", "1")
    steps = [event for event in RunFolder(out).events() if isinstance(event, StepDone)]
    return [Update(this.at_s - before.at_s, this.source_tokens, this.target_tokens) for before, this in pairwise(steps)]


def report(rows: Sequence[ToolkitComparison], options: argparse.Namespace) -> None:
    print(f"\nMulti30k en-de, float32, {options.threads} threads, {options.updates} updates after {options.warmup}")
    print_row("toolkit", "version", "tokens/s", "target tokens per update", "ours / theirs")
    print_row(*["---"] * 5)
    ours = [speed for row in rows for speed in row.ours]
    if ours:
        print_row("dragoman", dragoman.__version__, *_format_speeds(ours), "1.00 x")
    for row in rows:
        if row.problem:
            print_row(row.toolkit, row.version, f"not measured: {row.problem}", "", "")
        else:
            print_row(row.toolkit, row.version, *_format_speeds(row.theirs), f"{row.ratio:.2f} x")
    differences = {toolkit.package: toolkit.differences for toolkit in TOOLKITS}
    for row in rows:
        print(f"{row.toolkit}: {differences[row.toolkit]}.")
    settings = {"threads": options.threads, "updates": options.updates, "warmup": options.warmup}
    print_json("training_speed", **settings, rows=[_as_json(row) for row in rows])


def _format_speeds(speeds: Sequence[Speed]) -> tuple[str, str]:
    """Median tokens per second, and mean target tokens of an update."""
    rate = statistics.median(speed.tokens_per_s for speed in speeds)
    return f"{rate:,.0f}", f"{statistics.mean(speed.target_tokens for speed in speeds):,.0f}"


def _as_json(row: ToolkitComparison) -> dict[str, object]:
    if row.problem:
        return {"toolkit": row.toolkit, "version": row.version, "problem": row.problem}
    return {
        "toolkit": row.toolkit, "version": row.version, "ratio": round(row.ratio, 3),
        "tokens_per_s": [round(speed.tokens_per_s) for speed in row.theirs],
        "dragoman_tokens_per_s": [round(speed.tokens_per_s) for speed in row.ours],
        "target_tokens": [round(speed.target_tokens) for speed in row.theirs],
    }  # fmt: skip


if __name__ == "__main__":
    main()
