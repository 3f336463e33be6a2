"""Runs with a known limit or fault, and the warnings that insight must give about each of them: these and no others.

The runs are real, on test hosts or in a process on this machine. Their limits are a slow link, a CPU quota, a lost
host, a full disk, little memory, or too little data; healthy runs have none. Only slow storage is simulated, by a pause
at each read.
"""

import contextlib
import io
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.system.hosts import Hosts

from benchmarks.command_line import NO_EVALUATION, dragoman_command, run_dragoman
from benchmarks.host_runs import EQUAL_SHARES, HostLauncher
from dragoman.corpus import demo
from dragoman.corpus.shards import Pairs
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.insight.answers import answer_all
from dragoman.insight.diagnoses import diagnose
from dragoman.insight.run_history import read_history
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sinks import open_sinks
from dragoman.training import worker
from dragoman.training.worker import TrainingJob

PLAIN = "exchange.method=plain"
EQUAL_HOSTS, UNEQUAL_HOSTS = {"a": 0.9, "b": 0.9}, {"a": 0.9, "b": 0.3}
"""CPU quotas."""
SLOW_LINK = "30mbit"
FREQUENT_EVALUATION = ("evaluation.every=20", "evaluation.bleu=true", "evaluation.sentences=50")
DIVERGING = ("schedule.learning_rate=1000", "optimizer.clip_norm=0", "training.steps=300", "checkpoint.every=20")
READ_PAUSE_S = 0.6
"""Pause at each read from slow storage; longer than a step."""
MEMORY_LIMIT_BYTES = 7 << 30
"""Memory limit of a process that must run out of memory."""


@dataclass(frozen=True)
class RunDiagnosis:
    """Insight's output about a run: the keys of its warnings, and its answer whether the model is trained."""

    warnings: set[str]
    trained: str

    @classmethod
    def of(cls, folder: RunFolder) -> "RunDiagnosis":
        history = read_history(folder.path)
        answers = {answer.key: answer for answer in (*diagnose(history), *answer_all(history))}
        return cls({key for key, answer in answers.items() if answer.is_warning}, answers["trained"].text)


@dataclass(frozen=True)
class DiagnosisCase:
    """A kind of run, and the expected diagnosis."""

    name: str
    make_run: Callable[[Path], RunDiagnosis]
    """Given the demo data set."""
    warnings: frozenset[str] = frozenset()
    trained: str = ""
    """Expected beginning of the answer whether the model is trained, if the case is about that."""

    def matches(self, diagnosis: RunDiagnosis) -> bool:
        return diagnosis.warnings == self.warnings and diagnosis.trained.startswith(self.trained)


def train_locally(
    data: Path, out: Path, *settings: str, check: bool = True, memory_limit_bytes: int = 0, workers: int = 1
) -> None:
    """Run the recipe `tiny` in its own process. With `check`, a failure ends the benchmark."""
    limit = ["prlimit", f"--as={memory_limit_bytes}"] if memory_limit_bytes else []
    arguments = ["train", "tiny", "--data", data, "--out", out, "--workers", str(workers), "training.steps=60"]
    command = [*limit, *dragoman_command(*arguments, *NO_EVALUATION, *settings)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and process.returncode:
        raise SystemExit(process.stdout + process.stderr)


def _run_locally(data: Path, *settings: str, check: bool = True, memory_limit_bytes: int = 0) -> RunDiagnosis:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train_locally(data, run, *settings, check=check, memory_limit_bytes=memory_limit_bytes)
        return RunDiagnosis.of(RunFolder(run))


def _run_on_hosts(
    data: Path, quotas: Mapping[str, float], *settings: str, rate: str | None = None, options: Sequence[str] = (),
    steps: int = 60,
) -> RunDiagnosis:  # fmt: skip
    with Hosts(list(quotas), rate=rate, quotas=quotas) as hosts:
        settings = (*EQUAL_SHARES, *settings, f"training.steps={steps}")
        run = HostLauncher(hosts, data).run(",".join(quotas), *settings, options=options)
        return RunDiagnosis.of(run.folder())


def _run_on_pairs(splits: Mapping[str, Iterable[tuple[str, str]]], *settings: str) -> RunDiagnosis:
    """A run on generated pairs, with frequent evaluations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, pairs in splits.items():
            (folder / f"{split}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        run_dragoman(
            "prepare", folder / "train.tsv", "--valid", folder / "valid.tsv", "--languages", "en-de",
            "--recipe", "tiny", "--out", folder / "data", "tokenizer.vocabulary_size=400",
        )  # fmt: skip
        return _run_locally(folder / "data", *FREQUENT_EVALUATION, *settings)


def _host_lost(data: Path) -> RunDiagnosis:
    settings = (*EQUAL_SHARES, PLAIN, "training.steps=100000")
    with Hosts(list(EQUAL_HOSTS), quotas=EQUAL_HOSTS) as hosts:
        with HostLauncher(hosts, data).start("a,b", *settings, options=["--elastic"]) as run:
            run.wait_for_step(30)
            hosts["b"].kill()
            run.wait_for_step(run.last_step() + 40)
        return RunDiagnosis.of(run.folder())


def _resumed(data: Path) -> RunDiagnosis:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for steps in (40, 80):
            train_locally(data, out, f"training.steps={steps}", workers=2)
        return RunDiagnosis.of(RunFolder(out))


def _checkpoint_bound(data: Path) -> RunDiagnosis:
    """A checkpoint after each step, and steps that are shorter than writing a checkpoint."""
    return _run_locally(data, "checkpoint.every=1", "batch.tokens=200")


def _disk_full(data: Path) -> RunDiagnosis:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
        try:
            train_locally(data, Path(folder) / "run", "checkpoint.every=20")
            return RunDiagnosis.of(RunFolder(Path(folder) / "run"))
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def _out_of_memory(data: Path) -> RunDiagnosis:
    settings = ("batch.tokens=180000", "training.micro_batch_tokens=180000", "training.steps=3")
    return _run_locally(data, *settings, memory_limit_bytes=MEMORY_LIMIT_BYTES)


def _overfitting(_data: Path) -> RunDiagnosis:
    """Many epochs on few pairs, without dropout."""
    corpus = demo.generate(400, seed=3, valid=200, test=1)
    settings = ("training.steps=400", "model.dropout=0", "schedule.policy=constant")
    return _run_on_pairs({"train": corpus.train, "valid": corpus.valid}, *settings)


def _converged(_data: Path) -> RunDiagnosis:
    """Random translations: only the frequencies of words can be learned, so the loss soon stops falling."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghijklmnop", k=5)) for _ in range(60)]

    def sentence() -> str:
        return " ".join(rng.choices(words, k=rng.randint(6, 12)))

    pairs = {"train": 60_000, "valid": 300}
    splits = {name: [(sentence(), sentence()) for _ in range(count)] for name, count in pairs.items()}
    return _run_on_pairs(splits, "training.steps=400")


def _input_bound(data: Path) -> RunDiagnosis:
    """Slow storage."""
    with tempfile.TemporaryDirectory() as folder:
        gather = Pairs.gather

        def wait_and_gather(self: Pairs, numbers: Any) -> Any:
            time.sleep(READ_PAUSE_S)
            return gather(self, numbers)

        out = Path(folder) / "run"
        settings = resolve("tiny", ["training.steps=60", *NO_EVALUATION]).settings
        Pairs.gather = wait_and_gather  # type: ignore[method-assign]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                worker.train(TrainingJob(settings, data, out), make_scorer, open_sinks)
        finally:
            Pairs.gather = gather  # type: ignore[method-assign]
        return RunDiagnosis.of(RunFolder(out))


CASES = (
    DiagnosisCase("healthy, one host", lambda data: _run_on_hosts(data, {"a": 1.0})),
    DiagnosisCase("healthy, two hosts", lambda data: _run_on_hosts(data, EQUAL_HOSTS, PLAIN)),
    DiagnosisCase("healthy, elastic", lambda data: _run_on_hosts(data, EQUAL_HOSTS, PLAIN, options=["--elastic"])),
    DiagnosisCase("healthy, slow link, auto", lambda data: _run_on_hosts(data, EQUAL_HOSTS, rate=SLOW_LINK, steps=200)),
    DiagnosisCase("healthy, two workers, resumed", _resumed),
    DiagnosisCase(
        "network-bound", lambda data: _run_on_hosts(data, EQUAL_HOSTS, PLAIN, rate=SLOW_LINK), frozenset({"network"})
    ),
    DiagnosisCase("slow peer", lambda data: _run_on_hosts(data, UNEQUAL_HOSTS, PLAIN), frozenset({"straggler"})),
    DiagnosisCase("host lost", _host_lost, frozenset({"lost"})),
    DiagnosisCase("input-bound", _input_bound, frozenset({"input"})),
    DiagnosisCase("checkpoint-bound", _checkpoint_bound, frozenset({"checkpoint-stalls"})),
    DiagnosisCase("disk full", _disk_full, frozenset({"checkpoint-failed"})),
    DiagnosisCase("out of memory", _out_of_memory, frozenset({"out-of-memory"})),
    DiagnosisCase(
        "undertrained",
        lambda data: _run_locally(data, *FREQUENT_EVALUATION, "training.steps=140"),
        trained="Not yet",
    ),
    DiagnosisCase("converged", _converged, trained="Yes"),
    DiagnosisCase("overfitting", _overfitting, frozenset({"overfitting"}), "Trained too long"),
    DiagnosisCase("diverging", lambda data: _run_locally(data, *DIVERGING, check=False), frozenset({"diverging"})),
)
