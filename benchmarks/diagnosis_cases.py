"""Runs with a known limit or fault, and the warnings that insight must give about each of them: these and no others.

Two sets of the same kinds of runs. The rules of insight were written and corrected while looking at the runs of the
first set, TUNED. The seeds, sizes, rates and quotas of the second, UNSEEN, were chosen before any of its runs, and no
rule may be changed because of them: its score is the one to expect from other people's runs.

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

from benchmarks.command_line import NEVER, NO_EVALUATION, dragoman_command, run_dragoman
from benchmarks.diagnosis_scores import JudgedRun
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
FREQUENT_EVALUATION = ("evaluation.every=20", "evaluation.bleu=true", "evaluation.sentences=50")


@dataclass(frozen=True)
class CaseSettings:
    """What differs between the two sets of runs."""

    common: tuple[str, ...]
    """Settings of all runs, besides those of the recipe `tiny`."""
    seed: int
    """Of generated corpora."""
    equal_quotas: Mapping[str, float]
    unequal_quotas: Mapping[str, float]
    slow_link: str
    steps: int
    """Of runs that need no other number."""
    lost_at: int
    """Step after which a host is lost."""
    resumed_steps: tuple[int, int]
    read_pause_s: float
    """Pause at each read from slow storage; longer than a step."""
    short_batch: str
    """Steps with this setting are shorter than writing a checkpoint."""
    disk: str
    """Size of a disk that is smaller than a checkpoint."""
    huge_batch_tokens: int
    memory_limit_bytes: int
    """Less than a pass over the huge batch needs."""
    undertrained_steps: int
    converged_words: int
    """Distinct words of a corpus of random translations."""
    converged_steps: int
    overfitting_pairs: int
    overfitting_steps: int
    diverging: tuple[str, ...]


TUNED = CaseSettings(
    common=(), seed=3, equal_quotas={"a": 0.9, "b": 0.9}, unequal_quotas={"a": 0.9, "b": 0.3}, slow_link="30mbit",
    steps=60, lost_at=30, resumed_steps=(40, 80), read_pause_s=0.6, short_batch="batch.tokens=200", disk="8m",
    huge_batch_tokens=180_000, memory_limit_bytes=7 << 30, undertrained_steps=140, converged_words=60,
    converged_steps=400, overfitting_pairs=400, overfitting_steps=400,
    diverging=("schedule.learning_rate=1000", "training.steps=300", "checkpoint.every=20"),
)  # fmt: skip
UNSEEN = CaseSettings(
    common=(
        "training.seed=17", "batch.seed=23", "batch.tokens=3000", "model.encoder_layers=4", "model.decoder_layers=2",
    ),
    seed=41, equal_quotas={"a": 0.75, "b": 0.75}, unequal_quotas={"a": 0.8, "b": 0.35}, slow_link="45mbit",
    steps=75, lost_at=45, resumed_steps=(30, 90), read_pause_s=0.8, short_batch="batch.tokens=300", disk="6m",
    huge_batch_tokens=220_000, memory_limit_bytes=8 << 30, undertrained_steps=110, converged_words=90,
    converged_steps=500, overfitting_pairs=300, overfitting_steps=500,
    diverging=("schedule.learning_rate=200", "training.steps=250", "checkpoint.every=30"),
)  # fmt: skip


@dataclass(frozen=True)
class RunDiagnosis:
    """Insight's output about a run: the keys of its warnings, and its answer whether the model is trained."""

    warnings: set[str]
    trained: str

    @property
    def text(self) -> str:
        return ", ".join(sorted(self.warnings)) or "no warnings"

    @classmethod
    def of(cls, folder: RunFolder) -> "RunDiagnosis":
        history = read_history(folder.path)
        answers = {answer.key: answer for answer in (*diagnose(history), *answer_all(history))}
        return cls({key for key, answer in answers.items() if answer.is_warning}, answers["trained"].text)


@dataclass(frozen=True)
class DiagnosisCase:
    """A kind of run, and the expected diagnosis."""

    name: str
    make_run: Callable[["CaseRuns"], RunDiagnosis]
    warnings: frozenset[str] = frozenset()
    trained: str = ""
    """Expected beginning of the answer whether the model is trained, if the case is about that."""

    def judge(self, diagnosis: RunDiagnosis) -> JudgedRun:
        is_right = diagnosis.warnings == self.warnings and diagnosis.trained.startswith(self.trained)
        text = diagnosis.text + (f', "{diagnosis.trained[:12]}..."' if self.trained else "")
        return JudgedRun(self.name, self.warnings, frozenset(diagnosis.warnings), is_right, text)


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


class CaseRuns:
    """Makes the runs of a set, on the demo data set or on generated pairs, and diagnoses each."""

    def __init__(self, settings: CaseSettings, data: Path) -> None:
        self._settings = settings
        self._data = data

    def one_host(self) -> RunDiagnosis:
        return self._run_on_hosts({"a": 1.0})

    def equal_hosts(self, *settings: str, **options: Any) -> RunDiagnosis:
        return self._run_on_hosts(self._settings.equal_quotas, *settings, **options)

    def slow_link(self, *settings: str, **options: Any) -> RunDiagnosis:
        return self.equal_hosts(*settings, rate=self._settings.slow_link, **options)

    def unequal_hosts(self) -> RunDiagnosis:
        return self._run_on_hosts(self._settings.unequal_quotas, PLAIN)

    def lost_host(self) -> RunDiagnosis:
        quotas = self._settings.equal_quotas
        settings = (*EQUAL_SHARES, *self._settings.common, PLAIN, f"training.steps={NEVER}")
        with Hosts(list(quotas), quotas=quotas) as hosts:
            with HostLauncher(hosts, self._data).start("a,b", *settings, options=["--elastic"]) as run:
                run.wait_for_step(self._settings.lost_at)
                hosts["b"].kill()
                run.wait_for_step(run.last_step() + 40)
            return RunDiagnosis.of(run.folder())

    def resumed(self) -> RunDiagnosis:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            for steps in self._settings.resumed_steps:
                train_locally(self._data, out, *self._settings.common, f"training.steps={steps}", workers=2)
            return RunDiagnosis.of(RunFolder(out))

    def slow_storage(self) -> RunDiagnosis:
        gather = Pairs.gather

        def wait_and_gather(pairs: Pairs, numbers: Any) -> Any:
            time.sleep(self._settings.read_pause_s)
            return gather(pairs, numbers)

        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            steps = f"training.steps={self._settings.steps}"
            settings = resolve("tiny", [steps, *NO_EVALUATION, *self._settings.common]).settings
            Pairs.gather = wait_and_gather  # type: ignore[method-assign]
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    worker.train(TrainingJob(settings, self._data, out), make_scorer, open_sinks)
            finally:
                Pairs.gather = gather  # type: ignore[method-assign]
            return RunDiagnosis.of(RunFolder(out))

    def many_checkpoints(self) -> RunDiagnosis:
        return self._run_locally(self._data, "checkpoint.every=1", self._settings.short_batch)

    def full_disk(self) -> RunDiagnosis:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._settings.disk}", "tmpfs", folder], check=True)
            try:
                settings = (*self._settings.common, "checkpoint.every=20")
                train_locally(self._data, Path(folder) / "run", *settings, check=False)  # It cannot save its result.
                return RunDiagnosis.of(RunFolder(Path(folder) / "run"))
            finally:
                subprocess.run(["umount", "-l", folder], check=True)

    def out_of_memory(self) -> RunDiagnosis:
        tokens = self._settings.huge_batch_tokens
        settings = (f"batch.tokens={tokens}", f"training.micro_batch_tokens={tokens}", "training.steps=3")
        return self._run_locally(self._data, *settings, memory_limit_bytes=self._settings.memory_limit_bytes)

    def undertrained(self) -> RunDiagnosis:
        steps = f"training.steps={self._settings.undertrained_steps}"
        return self._run_locally(self._data, *FREQUENT_EVALUATION, steps)

    def converged(self) -> RunDiagnosis:
        """Random translations: only the frequencies of words can be learned, so the loss soon stops falling."""
        rng = random.Random(self._settings.seed)
        words = ["".join(rng.choices("abcdefghijklmnop", k=5)) for _ in range(self._settings.converged_words)]

        def sentence() -> str:
            return " ".join(rng.choices(words, k=rng.randint(6, 12)))

        pairs = {"train": 60_000, "valid": 300}
        splits = {name: [(sentence(), sentence()) for _ in range(count)] for name, count in pairs.items()}
        return self._run_on_pairs(splits, f"training.steps={self._settings.converged_steps}")

    def overfitting(self) -> RunDiagnosis:
        """Many epochs on few pairs, without dropout."""
        corpus = demo.generate(self._settings.overfitting_pairs, seed=self._settings.seed, valid=200, test=1)
        steps = f"training.steps={self._settings.overfitting_steps}"
        splits = {"train": corpus.train, "valid": corpus.valid}
        return self._run_on_pairs(splits, steps, "model.dropout=0", "schedule.policy=constant")

    def diverging(self) -> RunDiagnosis:
        return self._run_locally(self._data, "optimizer.clip_norm=0", *self._settings.diverging, check=False)

    def _run_locally(self, data: Path, *settings: str, check: bool = True, memory_limit_bytes: int = 0) -> RunDiagnosis:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            settings = (f"training.steps={self._settings.steps}", *self._settings.common, *settings)
            train_locally(data, run, *settings, check=check, memory_limit_bytes=memory_limit_bytes)
            return RunDiagnosis.of(RunFolder(run))

    def _run_on_hosts(
        self, quotas: Mapping[str, float], *settings: str, rate: str | None = None, options: Sequence[str] = (),
        steps: int = 0,
    ) -> RunDiagnosis:  # fmt: skip
        with Hosts(list(quotas), rate=rate, quotas=quotas) as hosts:
            settings = (
                *EQUAL_SHARES, *self._settings.common, *settings, f"training.steps={steps or self._settings.steps}",
            )  # fmt: skip
            run = HostLauncher(hosts, self._data).run(",".join(quotas), *settings, options=options)
            return RunDiagnosis.of(run.folder())

    def _run_on_pairs(self, splits: Mapping[str, Iterable[tuple[str, str]]], *settings: str) -> RunDiagnosis:
        """A run on generated pairs, with frequent evaluations."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for split, pairs in splits.items():
                (folder / f"{split}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
            run_dragoman(
                "prepare", folder / "train.tsv", "--valid", folder / "valid.tsv", "--languages", "en-de",
                "--recipe", "tiny", "--out", folder / "data", "tokenizer.vocabulary_size=400",
            )  # fmt: skip
            return self._run_locally(folder / "data", *FREQUENT_EVALUATION, *settings)


CASES = (
    DiagnosisCase("healthy, one host", CaseRuns.one_host),
    DiagnosisCase("healthy, two hosts", lambda runs: runs.equal_hosts(PLAIN)),
    DiagnosisCase("healthy, elastic", lambda runs: runs.equal_hosts(PLAIN, options=["--elastic"])),
    DiagnosisCase("healthy, slow link, auto", lambda runs: runs.slow_link(steps=200)),
    DiagnosisCase("healthy, two workers, resumed", CaseRuns.resumed),
    DiagnosisCase("network-bound", lambda runs: runs.slow_link(PLAIN), frozenset({"network"})),
    DiagnosisCase("slow peer", CaseRuns.unequal_hosts, frozenset({"straggler"})),
    DiagnosisCase("host lost", CaseRuns.lost_host, frozenset({"lost"})),
    DiagnosisCase("input-bound", CaseRuns.slow_storage, frozenset({"input"})),
    DiagnosisCase("checkpoint-bound", CaseRuns.many_checkpoints, frozenset({"checkpoint-stalls"})),
    DiagnosisCase("disk full", CaseRuns.full_disk, frozenset({"checkpoint-failed"})),
    DiagnosisCase("out of memory", CaseRuns.out_of_memory, frozenset({"out-of-memory"})),
    DiagnosisCase("undertrained", CaseRuns.undertrained, trained="Not yet"),
    DiagnosisCase("converged", CaseRuns.converged, trained="Yes"),
    DiagnosisCase("overfitting", CaseRuns.overfitting, frozenset({"overfitting"}), "Trained too long"),
    DiagnosisCase("diverging", CaseRuns.diverging, frozenset({"diverging"})),
)
