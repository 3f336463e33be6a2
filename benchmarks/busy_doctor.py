"""The doctor on a busy machine: a section of `benchmarks.insight`.

Other processes keep as many cores busy as there are, while the doctor estimates the same run several times, and while
that run then trains.
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.command_line import NO_EVALUATION, dragoman_command, run_dragoman
from benchmarks.reporting import Figure
from dragoman.events import StepDone
from dragoman.run_folder import RunFolder
from dragoman.telemetry.remaining_time import WARM_UP_STEPS

TRIES = 4
STEPS = 60


def measure_busy_doctor(data: Path) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, busy_processes(len(os.sched_getaffinity(0))):
        tries = [_estimate(data) for _ in range(TRIES)]
        run = Path(folder) / "run"
        run_dragoman("train", "tiny", "--data", data, "--out", run, f"training.steps={STEPS}", *NO_EVALUATION)
        steps = [event for event in RunFolder(run).events() if isinstance(event, StepDone)][WARM_UP_STEPS:]
    trained_s = statistics.fmean(step.step_s for step in steps)
    best_s = [found["step_s"] for found in tries]
    ranges = [(found["step_low_s"], found["step_high_s"]) for found in tries]
    difference = max(best_s) / min(best_s) - 1
    text = f"{difference:.0%} ({', '.join(f'{each:.3f} s' for each in best_s)})"
    yield Figure(f"doctor beside busy processes: best case of {TRIES} tries", text, "within 25 %", difference)
    within = sum(low <= trained_s <= high for low, high in ranges)
    text = (
        f"{within} of {TRIES} ({trained_s:.3f} s in {', '.join(f'{low:.3f} to {high:.3f} s' for low, high in ranges)})"
    )
    yield Figure("doctor beside busy processes: steps of training lie in its range", text, "all", within / TRIES)


def _estimate(data: Path) -> Any:
    command = dragoman_command("doctor", "tiny", "--data", data, "--json")
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found["estimate"]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep cores busy meanwhile."""
    processes = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        pass
