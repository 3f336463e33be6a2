"""Faults of every kind, with every exchange method, in static and elastic worlds: how each run ends.

Static worlds are `dragoman train --workers 2`, elastic ones `dragoman launch --hosts localhost:3 --elastic`. Faults
happen to worker 1, those of checkpoints to worker 0, which writes them. Needs root for the full disk. Takes about ten
minutes on two cores with `--parallel 2`.

    python -m benchmarks.fault_injection [--only nan exception freeze disk evaluation checkpoint join] [--parallel 1]
"""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psutil
import torch
from safetensors.torch import load_file
from tests.small import TINY

from benchmarks.command_line import dragoman_command, make_parser
from benchmarks.corpora import prepare_demo
from benchmarks.reporting import Figure, print_figures
from dragoman.event_log import read_events
from dragoman.events import RunEnded, StepDone, StepSkipped, WorkersLost
from dragoman.model.model_folder import WEIGHTS_FILE
from dragoman.run_folder import RunFolder

STEPS = 24
LIMIT_S = 280.0
"""A run that has not ended by then hangs. Without a fault it takes some ten seconds."""
FREEZE_S = 8.0
METHODS = {
    "plain": ("exchange.method=plain",),
    "bf16": ("exchange.method=bf16",),
    "powersgd": ("exchange.method=powersgd",),
    "local": ("exchange.method=local", "exchange.every=4"),
}
WORLDS = ("static", "elastic")
ONCE = ("nan", "evaluation", "checkpoint", "join")
"""Faults that leave a mark with their name."""
FINISHED = "finished"
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "nan": {"static": FINISHED, "elastic": FINISHED},
    "exception": {"static": "error: .*ValueError: the injected fault", "elastic": FINISHED},
    "freeze": {"static": FINISHED, "elastic": FINISHED},
    "disk": {
        "static": "error: The last checkpoint could not be written",
        "elastic": "error: .*The last checkpoint could not be written",
    },
    "evaluation": {"static": FINISHED, "elastic": FINISHED},
    "checkpoint": {"static": FINISHED, "elastic": FINISHED},
    "join": {"static": FINISHED, "elastic": FINISHED},
}
"""How a run ends after each fault: finished with all steps, or with one sentence."""


@dataclass(frozen=True)
class Cell:
    """A fault, a method and a world."""

    fault: str
    method: str
    world: str

    def __str__(self) -> str:
        return f"{self.fault}, {self.method}, {self.world}"


@dataclass(frozen=True)
class CellResult:
    """The end of a run after a fault."""

    cell: Cell
    outcome: str
    """`finished`, the error that it ended with, or what is wrong."""
    losses: int
    """Workers that were reported lost."""
    seconds: float

    @property
    def is_as_documented(self) -> bool:
        return re.match(EXPECTED[self.cell.fault][self.cell.world], self.outcome) is not None


def main() -> None:
    parser = make_parser(__doc__, EXPECTED)
    parser.add_argument("--parallel", type=int, default=1, help="runs at the same time (default: 1)")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=WORLDS, help="only these worlds (default: both)")
    arguments = parser.parse_args()
    cells = [Cell(*names) for names in product(arguments.only, METHODS, arguments.worlds)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.parallel) as pool:
        data = prepare_demo(Path(folder) / "data", "tiny").path
        results = pool.map(
            lambda numbered: run_cell(numbered[1], data, Path(folder) / str(numbered[0])), enumerate(cells)
        )
        print_figures("fault_injection", _figures(results))


def _figures(results: Iterator[CellResult]) -> Iterator[Figure]:
    done = []
    for result in results:
        done.append(result)
        measured = f"{result.outcome} ({result.seconds:.0f} s, {result.losses} losses reported)"
        expected = EXPECTED[result.cell.fault][result.cell.world]
        yield Figure(str(result.cell), measured, expected, result.is_as_documented)
    right = sum(result.is_as_documented for result in done)
    yield Figure("cells that end as documented", f"{right} of {len(done)}", "all", right)


def run_cell(cell: Cell, data: Path, folder: Path) -> CellResult:
    """Train with a fault, and look at the end."""
    folder.mkdir()
    with _run_folder(cell, folder) as run:
        process = _start(cell, data, folder, run)
        started_at = time.monotonic()
        act = {"freeze": _freeze_worker, "disk": _fill_disk}.get(cell.fault)
        if act is not None:
            threading.Thread(target=act, args=(process.pid, run), daemon=True).start()
        try:
            output = process.communicate(timeout=LIMIT_S)[0]
            happened = cell.fault not in ONCE or (folder / cell.fault).exists()
            outcome = _outcome(run, process.returncode, output) if happened else "the fault did not happen"
        except subprocess.TimeoutExpired:
            _kill_all(process.pid)
            outcome = "hangs"
        events = [event for log in run.glob("events-*.jsonl") for event in read_events(log)[0]]
        losses = sum(len(event.workers) for event in events if isinstance(event, WorkersLost))
    return CellResult(cell, outcome, losses, time.monotonic() - started_at)


def _start(cell: Cell, data: Path, folder: Path, run: Path) -> "subprocess.Popen[str]":
    worker = 0 if cell.fault == "checkpoint" else 1  # Worker 0 writes for all on one disk.
    fault = {"kind": cell.fault, "worker": worker, "elastic": cell.world == "elastic", "folder": str(folder)}
    path = os.pathsep.join([str(Path(__file__).parent / "faults"), os.environ.get("PYTHONPATH", "")])
    every = ("evaluation.every=12", "evaluation.bleu=false", "checkpoint.every=6")
    settings = (*TINY, *METHODS[cell.method], f"training.steps={STEPS}", *every)
    train = ("train", "tiny", "--data", str(data), "--out", str(run))
    command = (
        ("launch", "--hosts", "localhost:3", "--elastic", "--", *train, *settings)
        if cell.world == "elastic"
        else (*train, "--workers", "2", *settings)
    )
    return subprocess.Popen(
        dragoman_command(*command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "DRAGOMAN_FAULT": json.dumps(fault), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


@contextmanager
def _run_folder(cell: Cell, folder: Path) -> Iterator[Path]:
    """A folder for the run; for the fault `disk` on a small disk."""
    if cell.fault != "disk":
        yield folder / "run"
        return
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    try:
        yield disk / "run"
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _freeze_worker(parent: int, run: Path) -> None:
    """Stop worker 1 for a while, once it has taken some steps."""
    _wait_for_step(run, 8)
    worker = _find_second_worker(parent)
    worker.send_signal(signal.SIGSTOP)
    time.sleep(FREEZE_S)
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.send_signal(signal.SIGCONT)


def _fill_disk(_: int, run: Path) -> None:
    """Fill the disk of the run after its first checkpoint."""
    _wait_for_step(run, 8)
    with (run.parent / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def _wait_for_step(run: Path, step: int) -> None:
    while _last_step(run) < step:
        time.sleep(0.02)


def _find_second_worker(parent: int) -> psutil.Process:
    """Worker 1. Its environment does not show it: RANK is set after the start, or after the fork."""
    workers = [child for child in psutil.Process(parent).children(recursive=True) if _is_worker(child)]
    return sorted(workers, key=lambda worker: worker.pid)[1]


def _is_worker(process: psutil.Process) -> bool:
    """True for a worker that `train --workers` has spawned, or that a fork server has forked."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:  # It has just ended.
        return False
    return "spawn_main" in command or "-m dragoman train" in command


def _last_step(run: Path) -> int:
    log = RunFolder(run).events_of(0)
    events = read_events(log)[0] if log.exists() else []
    return max((event.step for event in events if isinstance(event, StepDone)), default=0)


def _outcome(run: Path, code: int, output: str) -> str:
    errors = re.findall(r"error: .*", output)
    if code:
        return errors[-1] if errors and "Traceback" not in output.rpartition("error: ")[2] else f"exit code {code}"
    events = [event for log in run.glob("events-*.jsonl") for event in read_events(log)[0]]
    if not any(isinstance(event, RunEnded) and event.reason == "finished" for event in events):
        return "ended without an end"
    steps = {event.step for event in events if isinstance(event, StepDone | StepSkipped)}
    missing = set(range(1, STEPS + 1)) - steps
    weights = load_file(run / "checkpoints" / "last" / WEIGHTS_FILE)
    finite = all(bool(torch.isfinite(tensor).all()) for tensor in weights.values())
    losses_finite = all(math.isfinite(event.loss) for event in events if isinstance(event, StepDone))
    if not finite or not losses_finite:
        return "finished with weights that are not finite"
    return FINISHED + (f", without steps {sorted(missing)}" if missing else "")


def _kill_all(parent: int) -> None:
    for process in [*psutil.Process(parent).children(recursive=True), psutil.Process(parent)]:
        process.kill()


if __name__ == "__main__":
    main()
