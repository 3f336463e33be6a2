"""Runs on a GPU with a known limit or fault, and the warnings that insight must give about each: these and no others.

Sections of `benchmarks.insight`. Two sets, as in `benchmarks.diagnosis_cases`: the rules may be corrected while looking
at the runs of the first, TUNED_CASES. The recipes, sizes, seeds and periods of the second, UNSEEN_CASES, were chosen
before any run, and no rule may be changed because of them.

The runs are real: `dragoman train` on Multi30k, stopped some seconds after its first steps. Faults happen in the
training process or around it (`benchmarks.gpu_faults`). A set takes about seven minutes on an H200. Running and judging
are separate: `--keep` keeps the events of the runs, and `--rejudge` judges them again without a GPU.
"""

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_line import NEVER, NO_EVALUATION
from benchmarks.corpora import prepare_multi30k
from benchmarks.diagnosis_cases import RunDiagnosis
from benchmarks.diagnosis_scores import JudgedRun, judge_runs
from benchmarks.forked_commands import ForkedCommand, run_forked, start_forked
from benchmarks.gpu_faults import (
    Hook,
    NotPossibleError,
    Surrounding,
    busy_core,
    changing_sizes,
    loader_on_core,
    locked_clocks,
    matrix_products,
    repeated_passes,
    slow_reads,
)
from benchmarks.reporting import Figure
from dragoman.authentication import new_secret
from dragoman.errors import DragomanError
from dragoman.insight.run_history import read_history
from dragoman.relay import LOOPBACK
from dragoman.run_folder import RunFolder
from dragoman.worker_environment import ADDRESS, SECRET, STORE_FILE

FIRST_STEPS = 12
"""Steps until the time of a run counts: they compile."""
START_S = 150.0
"""Longest time until a run has done them."""
STOP_S = 60.0
"""Longest time until a run has stopped and saved."""
CORE = max(os.sched_getaffinity(0))
"""The core that the data loader has to share."""
ENDLESS = f"training.steps={NEVER}"
EVALUATES = ("evaluation.bleu=true", f"checkpoint.every={NEVER}")
NOT_POSSIBLE = "not-possible.txt"
FAILED = "failed.txt"


@dataclass(frozen=True)
class GpuCase:
    """A run, and the kind of its fault."""

    name: str
    kind: str
    """Key of the expected warning; empty for a healthy run."""
    recipe: str
    settings: tuple[str, ...] = NO_EVALUATION
    hook: Hook = lambda: None
    surrounding: Surrounding = contextlib.nullcontext
    workers: int = 1
    seconds: float = 8.0
    """Time of training after the first steps."""

    @property
    def folder(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")


TUNED_CASES = (
    GpuCase("healthy, small", "", "small", (), seconds=14),
    GpuCase("healthy, transformer-base", "", "transformer-base", (*NO_EVALUATION, "batch.tokens=25600"), seconds=12),
    GpuCase("healthy, modern", "", "modern", (), seconds=12),
    GpuCase("slow disk", "input", "small", hook=slow_reads(0.03)),
    GpuCase("one core", "input", "transformer-base", hook=loader_on_core(CORE),
            surrounding=lambda: busy_core(CORE, 12)),
    GpuCase("tiny model", "launches", "tiny"),
    GpuCase("many checkpoints", "checkpoint-stalls", "transformer-big",
            (*NO_EVALUATION, "batch.tokens=8000", "checkpoint.every=5"), seconds=12),
    GpuCase("many evaluations", "evaluation", "small", (*EVALUATES, "evaluation.every=50"), seconds=12),
    GpuCase("small batch", "small-batch", "transformer-big", (*NO_EVALUATION, "batch.tokens=1000")),
    GpuCase("another process", "shared-gpu", "transformer-base", (*NO_EVALUATION, "batch.tokens=25600"),
            surrounding=lambda: matrix_products(8192), seconds=12),
    GpuCase("clocks at 600 MHz", "throttled", "transformer-base", (*NO_EVALUATION, "batch.tokens=25600"),
            surrounding=lambda: locked_clocks(600), seconds=12),
    GpuCase("slower twin", "straggler", "small", (*NO_EVALUATION, "training.shares=equal", "exchange.method=bf16"),
            hook=repeated_passes(60), workers=2, seconds=12),
    GpuCase("changing sizes", "compiling", "small", hook=changing_sizes(30)),
)  # fmt: skip
_SEEDS = ("training.seed=29", "batch.seed=31")
_DEEPER_SMALL = (*_SEEDS, "model.encoder_layers=6", "model.decoder_layers=3")
UNSEEN_CASES = (
    GpuCase("healthy, deeper small", "", "small",
            (*_DEEPER_SMALL, "batch.tokens=6000", "evaluation.every=400", "checkpoint.every=200"), seconds=14),
    GpuCase("healthy, transformer-base", "", "transformer-base", (*NO_EVALUATION, *_SEEDS, "batch.tokens=12800"),
            seconds=12),
    GpuCase("healthy, shallower modern", "", "modern", (*_SEEDS, "batch.tokens=16000", "model.encoder_layers=6"),
            seconds=12),
    GpuCase("slow disk", "input", "modern", (*NO_EVALUATION, *_SEEDS, "batch.tokens=12000"), hook=slow_reads(0.05)),
    GpuCase("one core", "input", "small", (*NO_EVALUATION, *_DEEPER_SMALL, "batch.tokens=8192"),
            hook=loader_on_core(CORE), surrounding=lambda: busy_core(CORE, 20)),
    GpuCase("model of the demo", "launches", "demo", (*NO_EVALUATION, *_SEEDS, "batch.tokens=1500")),
    GpuCase("many checkpoints", "checkpoint-stalls", "modern", (*NO_EVALUATION, *_SEEDS, "checkpoint.every=4"),
            seconds=12),
    GpuCase("many evaluations", "evaluation", "modern",
            (*EVALUATES, *_SEEDS, "batch.tokens=12800", "evaluation.every=30"), seconds=16),
    GpuCase("small batch", "small-batch", "transformer-base", (*NO_EVALUATION, *_SEEDS, "batch.tokens=1200")),
    GpuCase("another process", "shared-gpu", "modern", (*NO_EVALUATION, *_SEEDS),
            surrounding=lambda: matrix_products(4096), seconds=12),
    GpuCase("clocks at 900 MHz", "throttled", "modern", (*NO_EVALUATION, *_SEEDS),
            surrounding=lambda: locked_clocks(900), seconds=12),
    GpuCase("slower twin", "straggler", "small",
            (*NO_EVALUATION, *_DEEPER_SMALL, "batch.tokens=8192", "training.shares=equal", "exchange.method=bf16"),
            hook=repeated_passes(90), workers=2, seconds=12),
    GpuCase("changing sizes", "compiling", "modern", (*NO_EVALUATION, *_SEEDS, "batch.tokens=12000"),
            hook=changing_sizes(12), seconds=10),
)  # fmt: skip


def measure_gpu_diagnoses(
    section: str, cases: Sequence[GpuCase], options: argparse.Namespace, corpora: Path
) -> Iterator[Figure]:
    """Make the runs of a set, unless they were kept, and judge the diagnoses of each."""
    chosen = [case for case in cases if not options.cases or case.name in options.cases]
    name = f"GPU, {'tuned' if cases is TUNED_CASES else 'unseen'} set"
    with tempfile.TemporaryDirectory() as temporary:
        root = (options.rejudge or options.keep or Path(temporary)) / section
        if options.rejudge is None:
            data = prepare_multi30k(Path(temporary) / "data", "small", corpora).path
            made = ((case, make_run(case, data, root / case.folder)) for case in chosen)
        else:
            made = ((case, root / case.folder) for case in chosen if (root / case.folder).exists())
        judged = (judge_case(case, folder) for case, folder in made)
        yield from judge_runs((run for run in judged if run is not None), name, "at least 90 %")
        for case in chosen:
            if (reason := root / case.folder / NOT_POSSIBLE).exists():
                yield Figure(f"{case.name}: not possible here", reason.read_text().strip(), "", None)


def judge_case(case: GpuCase, folder: Path) -> JudgedRun | None:
    """The diagnosis of a kept run; None if its fault could not be made to happen."""
    if (folder / NOT_POSSIBLE).exists():
        return None
    expected = frozenset({case.kind} - {""})
    if (folder / FAILED).exists():
        return JudgedRun(case.name, expected, frozenset(), False, (folder / FAILED).read_text()[-300:])
    found = RunDiagnosis.of(RunFolder(folder / "run"))
    return JudgedRun(case.name, expected, frozenset(found.warnings), found.warnings == expected, found.text)


def make_run(case: GpuCase, data: Path, folder: Path) -> Path:
    """Make the run of a case in a folder, with its report. A failure is kept there, and does not end the benchmark."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with case.surrounding():
            train_for_a_while(case, data, folder)
        run_forked(folder / "report.md", "report", folder / "run", "--markdown")
    except NotPossibleError as error:
        (folder / NOT_POSSIBLE).write_text(f"{error}\n")
    except SystemExit as error:
        (folder / FAILED).write_text(f"{error}\n")
    shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
    return folder


def train_for_a_while(case: GpuCase, data: Path, folder: Path) -> None:
    """Train until the first steps are done and some seconds longer, and stop as a user does."""
    run = folder / "run"
    arguments = ("train", case.recipe, "--data", data, "--out", run, ENDLESS, *case.settings)
    workers = [
        start_forked(folder / f"output-{rank}.txt", *arguments, environment=environment, before=case.hook)
        for rank, environment in enumerate(_environments(case.workers, folder / "store"))
    ]
    try:
        deadline = time.monotonic() + START_S
        while _last_step(run) < FIRST_STEPS and time.monotonic() < deadline and _all_run(workers):
            time.sleep(0.5)
        if _all_run(workers):
            time.sleep(case.seconds)
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join(STOP_S)
    finally:
        for worker in workers:
            worker.process.kill()
    for worker in workers:
        worker.wait()


def _environments(workers: int, store: Path) -> list[dict[str, str]]:
    """Variables of each worker, as `dragoman train --workers` sets them. A single worker needs none."""
    if workers == 1:
        return [{}]
    shared = {
        "WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers), "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo", ADDRESS: LOOPBACK, SECRET: new_secret(), STORE_FILE: str(store),
    }  # fmt: skip
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(workers)]


def _all_run(workers: Sequence[ForkedCommand]) -> bool:
    return all(worker.process.exitcode is None for worker in workers)


def _last_step(run: Path) -> int:
    try:
        return read_history(run).step
    except DragomanError:
        return 0
