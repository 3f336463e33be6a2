"""Runs that are each made to be of one kind, and what insight must say of them: that, and nothing else.

They are real, on hosts made of namespaces or in a process here: kept back by a slow link, a quota, a lost host, a full
disk, little memory, too little data, or nothing. Storage that is slow is the one thing that is made up: a pause at each
reading.
"""

import contextlib
import io
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.hosts import Hosts

from benchmarks.machines import SHORT, Runs
from dragoman.corpus import demo
from dragoman.corpus.shards import Pairs
from dragoman.decoding.translation_judge import make_judge
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.run_history import read_history
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sinks import open_sinks
from dragoman.training import worker
from dragoman.training.worker import TrainingJob

EQUAL = ("training.shares=equal", *SHORT)
PLAIN = "exchange.method=plain"
PAIR, UNEVEN = {"a": 0.9, "b": 0.9}, {"a": 0.9, "b": 0.3}
JUDGED = ("evaluation.every=20", "evaluation.bleu=true", "evaluation.sentences=50")
DIVERGING = ("schedule.learning_rate=1000", "optimizer.clip_norm=0", "training.steps=300", "checkpoint.every=20")
PAUSE_S = 0.6
"""Of storage that is slower than the steps."""
MEMORY = 7 << 30
"""Of a process that is to run out of it."""


@dataclass(frozen=True)
class Kind:
    """A run that was made to be of a kind, and what is to be said of it."""

    name: str
    make: Callable[[Path], "Said"]
    alarms: frozenset[str] = frozenset()
    words: str = ""
    """What the answer whether it is trained must begin with, where the kind is about that."""


@dataclass(frozen=True)
class Said:
    """What insight says of a run."""

    alarms: set[str]
    trained: str

    @classmethod
    def of(cls, folder: RunFolder) -> "Said":
        history = read_history(folder.path)
        answers = {answer.key: answer for answer in (*diagnose(history), *answer_all(history))}
        return cls({key for key, answer in answers.items() if answer.is_warning}, answers["trained"].text)


def _on_hosts(
    data: Path, quotas: Mapping[str, float], *words: str, rate: str | None = None, options: Sequence[str] = (),
    steps: int = 60,
) -> Said:  # fmt: skip
    with Hosts(list(quotas), rate=rate, quotas=quotas) as bed:
        runs = Runs(bed, data)
        run = runs.finished(",".join(quotas), *EQUAL, *words, f"training.steps={steps}", options=options)
        return Said.of(run.folder())


def _host_lost(data: Path) -> Said:
    with Hosts(list(PAIR), quotas=PAIR) as bed:
        with Runs(bed, data).started("a,b", *EQUAL, PLAIN, "training.steps=100000", options=["--elastic"]) as run:
            run.wait_for(30)
            bed["b"].kill()
            run.wait_for(run.last_step() + 40)
        return Said.of(run.folder())


def _here(data: Path, *words: str, ends_well: bool = True, memory_bytes: int = 0) -> Said:
    """A run of one worker on this machine, without hosts."""
    with tempfile.TemporaryDirectory() as folder:
        train_here(data, Path(folder) / "run", *words, ends_well=ends_well, memory_bytes=memory_bytes)
        return Said.of(RunFolder(Path(folder) / "run"))


def train_here(
    data: Path, out: Path, *words: str, ends_well: bool = True, memory_bytes: int = 0, workers: int = 1
) -> None:
    """A run of `tiny` in a process of its own."""
    limit = ["prlimit", f"--as={memory_bytes}"] if memory_bytes else []
    command = [
        *limit, sys.executable, "-m", "dragoman", "train", "tiny", "--data", str(data), "--out", str(out),
        "--workers", str(workers), "training.steps=60", *SHORT, *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if ends_well and done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def _resumed(data: Path) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for steps in (40, 80):
            train_here(data, out, f"training.steps={steps}", workers=2)
        return Said.of(RunFolder(out))


def _saving_often(data: Path) -> Said:
    """After each step, and steps are shorter than writing is."""
    return _here(data, "checkpoint.every=1", "batch.tokens=200")


def _disk_full(data: Path) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        disk = Path(folder)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
        try:
            train_here(data, disk / "run", "checkpoint.every=20")
            return Said.of(RunFolder(disk / "run"))
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def _out_of_memory(data: Path) -> Said:
    return _here(
        data, "batch.tokens=180000", "training.micro_batch_tokens=180000", "training.steps=3", memory_bytes=MEMORY
    )


def _overfitting(_data: Path) -> Said:
    """Much training on few pairs."""
    made = demo.generate(400, seed=3, valid=200, test=1)
    words = ("training.steps=400", "model.dropout=0", "schedule.policy=constant")
    return _on_pairs({"train": made.train, "valid": made.valid}, *words)


def _converged(_data: Path) -> Said:
    """Translations by lot: there is nothing to learn but which words there are."""
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnop", k=5)) for _ in range(60)]

    def sentence() -> str:
        return " ".join(chance.choices(words, k=chance.randint(6, 12)))

    pairs = {"train": 60_000, "valid": 300}
    return _on_pairs({name: [(sentence(), sentence()) for _ in range(count)] for name, count in pairs.items()},
                     "training.steps=400")  # fmt: skip


def _on_pairs(splits: Mapping[str, Iterable[tuple[str, str]]], *words: str) -> Said:
    """A run that is judged often, on pairs of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, pairs in splits.items():
            (folder / f"{split}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        train, valid = (str(folder / f"{split}.tsv") for split in ("train", "valid"))
        command = [
            sys.executable, "-m", "dragoman", "prepare", train, "--valid", valid, "--languages", "en-de",
            "--recipe", "tiny", "--out", str(folder / "data"), "tokenizer.vocabulary_size=400",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        return _here(folder / "data", *JUDGED, *words)


def _starved(data: Path) -> Said:
    """Storage that takes its time."""
    with tempfile.TemporaryDirectory() as folder:
        gather = Pairs.gather

        def wait_and_gather(self: Pairs, numbers: Any) -> Any:
            time.sleep(PAUSE_S)
            return gather(self, numbers)

        out = Path(folder) / "run"
        settings = resolve("tiny", ["training.steps=60", *SHORT]).settings
        Pairs.gather = wait_and_gather  # type: ignore[method-assign]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                worker.train(TrainingJob(settings, data, out), make_judge, open_sinks)
        finally:
            Pairs.gather = gather  # type: ignore[method-assign]
        return Said.of(RunFolder(out))


KINDS = (
    Kind("healthy, one host", lambda data: _on_hosts(data, {"a": 1.0})),
    Kind("healthy, two hosts", lambda data: _on_hosts(data, PAIR, PLAIN)),
    Kind("healthy, elastic", lambda data: _on_hosts(data, PAIR, PLAIN, options=["--elastic"])),
    Kind("healthy, slow link, auto", lambda data: _on_hosts(data, PAIR, rate="30mbit", steps=200)),
    Kind("healthy, two workers, resumed", _resumed),
    Kind("network-bound", lambda data: _on_hosts(data, PAIR, PLAIN, rate="30mbit"), frozenset({"network"})),
    Kind("slow peer", lambda data: _on_hosts(data, UNEVEN, PLAIN), frozenset({"straggler"})),
    Kind("host lost", _host_lost, frozenset({"lost"})),
    Kind("input-bound", _starved, frozenset({"input"})),
    Kind("checkpoint-bound", _saving_often, frozenset({"checkpoint-stalls"})),
    Kind("disk full", _disk_full, frozenset({"checkpoint-failed"})),
    Kind("out of memory", _out_of_memory, frozenset({"out-of-memory"})),
    Kind("undertrained", lambda data: _here(data, *JUDGED, "training.steps=140"), words="Not yet"),
    Kind("converged", _converged, words="Yes"),
    Kind("overfitting", _overfitting, frozenset({"overfitting"}), "Trained too long"),
    Kind("diverging", lambda data: _here(data, *DIVERGING, ends_well=False), frozenset({"diverging"})),
)
