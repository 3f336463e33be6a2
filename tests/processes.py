"""Start `dragoman train` in separate processes, as users do."""

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
    """Start a run in its own process group. A launcher such as torchrun creates the workers itself."""
    command = [*(launcher or (sys.executable, "-m")), "dragoman", "train", "tiny", "--data", str(data)]
    command += ["--out", str(run), *([] if launcher else ["--workers", str(workers)]), *size, *overrides]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def train(
    data: Path, run: Path, *overrides: str, workers: int = 2, launcher: Sequence[str] = (), size: Sequence[str] = TINY
) -> str:
    """Run training until it ends, and return its output. Raise an AssertionError with the output if it fails."""
    process = start(data, run, *overrides, workers=workers, launcher=launcher, size=size)
    output, _ = process.communicate(timeout=300)
    if process.returncode:
        raise AssertionError(output)
    return output


def train_several(data: Path, folder: Path, runs: Mapping[str, Sequence[str]]) -> None:
    """Train runs with these settings and two workers, one after the other in the same processes, in `folder / name`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.several_runs"]
    settings = json.dumps({name: [*TINY, *overrides] for name, overrides in runs.items()})
    command = [sys.executable, *launcher, str(data), str(folder), settings]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=PROJECT, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def losses(run: Path) -> dict[int, float]:
    """Loss of each step. For steps that were repeated after a kill, the loss of the last repetition."""
    return {event.step: event.loss for event in RunFolder(run).events() if isinstance(event, StepDone)}


def wait_for_steps(run: Path, steps: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has done this many steps, or its process has ended."""
    while process.poll() is None and max(losses(run), default=0) < steps:
        time.sleep(0.05)
