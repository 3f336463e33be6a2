"""Training on a CPU against JoeyNMT, Eole and Marian: source and target tokens a second.

All train one model (256 features, 4 + 4 layers, 4 heads, tied embeddings, pre-norm) on Multi30k, in float32, with Adam,
4,096 real target tokens an update, one process and the same number of threads. All read the same pieces of our
tokenizer, and a token is counted the same way everywhere: a piece, or one end mark of each side; padding never counts.
We train by `dragoman train` and read the run's events. Runs take turns: ours, one of theirs, ours, the next. A speed is
the median over updates after a warm-up, and a ratio is against our run just before. `toolkits` says what differs.

The first use installs each toolkit in an environment of its own in the cache folder. Run it on an idle machine: threads
that wait for each other suffer more than in proportion when something else takes their cores.

    python -m benchmarks.training [--updates 20] [--warmup 5] [--threads 2] [--rounds 1] [--only eole]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import dragoman
from benchmarks import toolkits
from benchmarks.toolkits import (
    ADAM,
    CLIP_NORM,
    NEVER,
    TOOLKITS,
    WARMUP_STEPS,
    Shape,
    Task,
    Toolkit,
    ToolkitError,
    Update,
)
from dragoman.corpus.dataset import DataSet
from dragoman.events import StepDone
from dragoman.run_folder import RunFolder

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "multi30k-en-de"


@dataclass(frozen=True)
class Speed:
    """What was measured of one run."""

    tokens_per_s: float
    target_tokens: float
    """Of an update, on average."""

    @classmethod
    def of(cls, updates: Sequence[Update]) -> "Speed":
        rate = statistics.median(update.tokens_per_s for update in updates)
        return cls(rate, statistics.mean(update.target_tokens for update in updates))


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    toolkit: str
    version: str
    theirs: Sequence[Speed] = ()
    ours: Sequence[Speed] = ()
    """Our runs just before theirs."""
    problem: str = ""

    @property
    def ratio(self) -> float:
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20, help="measured in each run")
    parser.add_argument("--warmup", type=int, default=5, help="updates before them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[toolkit.package for toolkit in TOOLKITS])
    options = parser.parse_args()
    if not CORPUS.is_dir():
        raise SystemExit(f"{CORPUS} does not exist: put Multi30k there, as train.en.xz, train.de.xz and so for valid.")
    # Children inherit it, and each toolkit takes as many threads.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    wanted = [toolkit for toolkit in TOOLKITS if not options.only or toolkit.package in options.only]
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(wanted, options, Path(folder))
    report(rows, options)


def compare(wanted: Sequence[Toolkit], options: argparse.Namespace, folder: Path) -> list[Row]:
    """Every toolkit by turns with ours, and first what they need."""
    rows: dict[str, Row] = {}
    programs: dict[str, Path] = {}
    for toolkit in wanted:
        try:
            programs[toolkit.package] = toolkits.install(toolkit)
            rows[toolkit.package] = Row(toolkit.package, toolkits.version(toolkit, programs[toolkit.package]))
        except ToolkitError as failure:
            rows[toolkit.package] = Row(toolkit.package, "", problem=str(failure))
    data = prepare(folder / "data")
    text = toolkits.write_text(data, folder / "text")
    for number in range(options.rounds):
        for toolkit in wanted:
            row = rows[toolkit.package]
            if row.problem:
                continue
            place = folder / f"{toolkit.package}-{number}"
            place.mkdir()
            task = Task(Shape(), text, options.warmup + options.updates, options.threads, place)
            ours = Speed.of(train_ours(data, task)[options.warmup :])
            print(f"dragoman: {ours.tokens_per_s:,.0f} tokens/s", flush=True)
            try:
                theirs = Speed.of(toolkit.train(programs[toolkit.package], task)[options.warmup :])
            except ToolkitError as failure:
                rows[toolkit.package] = Row(row.toolkit, row.version, problem=str(failure))
                continue
            print(f"{toolkit.package}: {theirs.tokens_per_s:,.0f} tokens/s", flush=True)
            rows[toolkit.package] = Row(row.toolkit, row.version, [*row.theirs, theirs], [*row.ours, ours])
    return list(rows.values())


def prepare(folder: Path) -> DataSet:
    train, valid = ([str(CORPUS / f"{split}.{side}.xz") for side in ("en", "de")] for split in ("train", "valid"))
    _dragoman("prepare", *train, "--valid", ",".join(valid), "--recipe", "small", "--out", str(folder))
    return DataSet(folder)


def train_ours(data: DataSet, task: Task) -> list[Update]:
    """A run of ours. An update lasts from the end of the one before to its own: waiting for its batch is part of it."""
    shape = task.shape
    settings = {
        "batch.tokens": shape.target_tokens, "model.d_model": shape.d_model, "model.heads": shape.heads,
        "model.encoder_layers": shape.layers, "model.decoder_layers": shape.layers,
        "model.feed_forward": shape.feed_forward, "model.dropout": shape.dropout,
        "training.label_smoothing": shape.label_smoothing, "training.precision": "fp32",
        "training.steps": task.updates + 1, "optimizer.beta1": ADAM["beta1"], "optimizer.beta2": ADAM["beta2"],
        "optimizer.epsilon": ADAM["epsilon"], "optimizer.clip_norm": CLIP_NORM, "schedule.learning_rate": ADAM["rate"],
        "schedule.warmup_steps": WARMUP_STEPS, "evaluation.every": NEVER, "evaluation.bleu": "false",
        "checkpoint.every": NEVER,
    }  # fmt: skip
    overrides = [f"{key}={value}" for key, value in settings.items()]
    out = task.folder / "dragoman"
    _dragoman("train", "small", *overrides, "--data", str(data.path), "--out", str(out), "--workers", "1")
    steps = [event for event in RunFolder(out).events() if isinstance(event, StepDone)]
    return [Update(this.at_s - before.at_s, this.source_tokens, this.target_tokens) for before, this in pairwise(steps)]


def _dragoman(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", *arguments], capture_output=True, text=True, check=False
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"dragoman {arguments[0]} left with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def report(rows: Sequence[Row], options: argparse.Namespace) -> None:
    ours = [speed for row in rows for speed in row.ours]
    print(f"\nMulti30k en-de, float32, {options.threads} threads, {options.updates} updates after {options.warmup}")
    print(f"{'toolkit':<12}{'version':>10}{'tokens/s':>12}{'target tokens/update':>23}{'ours/theirs':>13}")
    if ours:
        print(_line("dragoman", dragoman.__version__, ours) + f"{1:>12.2f}x")
    for row in rows:
        if row.problem:
            print(f"{row.toolkit:<12}{row.version:>10}  not measured: {row.problem}")
        else:
            print(_line(row.toolkit, row.version, row.theirs) + f"{row.ratio:>12.2f}x")
    by_name = {toolkit.package: toolkit for toolkit in TOOLKITS}
    for row in rows:
        print(f"  {row.toolkit}: {by_name[row.toolkit].remarks}.")
    content = [
        {"toolkit": row.toolkit, "version": row.version, "problem": row.problem}
        if row.problem
        else {
            "toolkit": row.toolkit, "version": row.version, "ratio": round(row.ratio, 3),
            "tokens_per_s": [round(speed.tokens_per_s) for speed in row.theirs],
            "dragoman_tokens_per_s": [round(speed.tokens_per_s) for speed in row.ours],
            "target_tokens": [round(speed.target_tokens) for speed in row.theirs],
        }
        for row in rows
    ]  # fmt: skip
    settings = {"threads": options.threads, "updates": options.updates, "warmup": options.warmup}
    print(json.dumps({"benchmark": "training", **settings, "rows": content}))


def _line(name: str, version: str, speeds: Sequence[Speed]) -> str:
    rate = statistics.median(speed.tokens_per_s for speed in speeds)
    batch = statistics.mean(speed.target_tokens for speed in speeds)
    return f"{name:<12}{version:>10}{rate:>12,.0f}{batch:>23,.0f}"


if __name__ == "__main__":
    main()
