"""Runs of `dragoman train` in processes of their own, as users start them."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dragoman.events import StepDone
from dragoman.run_folder import RunFolder

from .small import TINY

PROJECT = Path(__file__).parents[1]


def start(
    data: Path, run: Path, *overrides: str, workers: int = 2, launcher: Sequence[str] = (), size: Sequence[str] = TINY
) -> subprocess.Popen[str]:
    """A run under way, in a process group of its own. A launcher makes the workers by itself."""
    command = [*(launcher or (sys.executable, "-m")), "dragoman", "train", "tiny", "--data", str(data)]
    command += ["--out", str(run), *([] if launcher else ["--workers", str(workers)]), *size, *overrides]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def train(
    data: Path, run: Path, *overrides: str, workers: int = 2, launcher: Sequence[str] = (), size: Sequence[str] = TINY
) -> str:
    """A run from its beginning to its end, and what it said."""
    process = start(data, run, *overrides, workers=workers, launcher=launcher, size=size)
    output, _ = process.communicate(timeout=300)
    if process.returncode:
        raise AssertionError(output)
    return output


def train_several(data: Path, folder: Path, runs: Mapping[str, Sequence[str]]) -> None:
    """Runs of two workers with these settings, one after the other in the same processes, each in `folder / name`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.several_runs"]
    settings = json.dumps({name: [*TINY, *overrides] for name, overrides in runs.items()})
    command = [sys.executable, *launcher, str(data), str(folder), settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=PROJECT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def losses(run: Path) -> dict[int, float]:
    """The loss of each step; of one that was taken again after a kill, the latest."""
    return {event.step: event.loss for event in RunFolder(run).events() if isinstance(event, StepDone)}


def wait_for_steps(run: Path, steps: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and max(losses(run), default=0) < steps:
        time.sleep(0.05)
