"""Faults of runs on a GPU, for `benchmarks.gpu_diagnosis_cases`: in the training process, or in its surroundings.

A hook changes the training process after its fork. A surrounding is entered around the run.
"""

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from benchmarks.forked_commands import FORK
from dragoman.batching.data_loader import SIZE_MULTIPLE, DataLoader
from dragoman.corpus.shards import Pairs
from dragoman.prefetch import Prefetcher
from dragoman.training.train_step import TrainStep

Hook = Callable[[], None]
Surrounding = Callable[[], AbstractContextManager[None]]
START_S = 60.0
"""Longest time that another process needs to start."""


class NotPossibleError(Exception):
    """This machine does not let the fault happen."""


def slow_reads(pause_s: float) -> Hook:
    """Storage that needs a pause for each read."""

    def hook() -> None:
        gather = Pairs.gather

        def wait_and_gather(pairs: Pairs, numbers: Any) -> Any:
            time.sleep(pause_s)
            return gather(pairs, numbers)

        Pairs.gather = wait_and_gather  # type: ignore[method-assign]

    return hook


def loader_on_core(core: int) -> Hook:
    """The data loader's thread may use one core only."""

    def hook() -> None:
        fill = Prefetcher._fill

        def fill_on_core(prefetcher: Prefetcher[Any], items: Iterator[Any]) -> None:
            os.sched_setaffinity(0, {core})  # Of this thread alone.
            fill(prefetcher, items)

        Prefetcher._fill = fill_on_core  # type: ignore[method-assign]

    return hook


def changing_sizes(most: int) -> Hook:
    """Micro-batches are padded to sizes that change from step to step, by up to `most` tiles."""

    def hook() -> None:
        rng = random.Random(most)

        def draw_size(_loader: DataLoader, tokens: int, _largest_batch: int) -> int:
            return SIZE_MULTIPLE * (-(-tokens // SIZE_MULTIPLE) + rng.randint(0, most))

        DataLoader._fixed_size = draw_size  # type: ignore[method-assign]

    return hook


def repeated_passes(times: int) -> Hook:
    """Worker 1 computes each of its passes several times, as a slower GPU would take longer."""

    def hook() -> None:
        run = TrainStep.__call__

        def run_repeatedly(train_step: TrainStep, batch: Any, step: int) -> Any:
            for _ in range(times - 1):
                run(train_step, batch, step)
            return run(train_step, batch, step)

        if os.environ.get("RANK") == "1":
            TrainStep.__call__ = run_repeatedly  # type: ignore[method-assign]

    return hook


@contextlib.contextmanager
def busy_core(core: int, processes: int) -> Iterator[None]:
    """Processes that compete for one core."""
    with _children([lambda: _spin(core)] * processes):
        yield


@contextlib.contextmanager
def matrix_products(size: int) -> Iterator[None]:
    """Another process that multiplies matrices on the GPU without a pause."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "started"
        with _children([lambda: _multiply(size, mark)]) as (process,):
            deadline = time.monotonic() + START_S
            while not mark.exists():
                if time.monotonic() > deadline or not process.is_alive():
                    raise NotPossibleError("the other process does not start")
                time.sleep(0.1)
            yield


@contextlib.contextmanager
def locked_clocks(mhz: int) -> Iterator[None]:
    """Clocks of the GPU locked by its administrator."""
    if shutil.which("nvidia-smi") is None:
        raise NotPossibleError("there is no nvidia-smi")
    locked = subprocess.run(["nvidia-smi", "-lgc", f"{mhz},{mhz}"], capture_output=True, text=True, check=False)
    if locked.returncode:
        raise NotPossibleError(f"nvidia-smi -lgc {mhz}: {(locked.stdout + locked.stderr).strip()}")
    try:
        yield
    finally:
        subprocess.run(["nvidia-smi", "-rgc"], capture_output=True, check=False)


@contextlib.contextmanager
def _children(targets: list[Callable[[], None]]) -> Iterator[list[BaseProcess]]:
    processes: list[BaseProcess] = [FORK.Process(target=target, daemon=True) for target in targets]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


def _spin(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        pass


def _multiply(size: int, mark: Path) -> None:
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    while True:
        for _ in range(20):
            torch.mm(left, right)
        torch.cuda.synchronize()
        mark.touch()
