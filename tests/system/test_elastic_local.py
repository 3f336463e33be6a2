"""Local steps in an elastic world: a lost worker costs its own steps since the last synchronisation, and no others."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.events import ReplicasDrifted, StepDone, WorkersLost, WorldChanged
from dragoman.run_folder import RunFolder

from ..processes import wait_for_steps
from ..small import TINY

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

EVERY, STEPS = 400, 2000
SETTINGS = (
    "exchange.method=local", f"exchange.every={EVERY}", "exchange.overlap=4", "exchange.wire_format=int8",
    f"training.steps={STEPS}", f"evaluation.every={STEPS}", f"checkpoint.every={STEPS}", "evaluation.bleu=false",
)  # fmt: skip


def start(data: Path, run: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "dragoman", "launch", "--hosts", "localhost:3", "--elastic", "--", "train", "tiny"]
    return subprocess.Popen(
        [*command, "--data", str(data), "--out", str(run), *TINY, *SETTINGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill_one_worker(launcher: "subprocess.Popen[str]") -> None:
    processes = psutil.Process(launcher.pid).children(recursive=True)
    workers = [process for process in processes if process.cmdline()[1:4] == ["-m", "dragoman", "train"]]
    max(workers, key=lambda worker: worker.pid).kill()


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("elastic-local") / "run"
    launcher = start(data.path, folder)
    try:
        wait_for_steps(folder, EVERY + 50, launcher)
        kill_one_worker(launcher)
        output, _ = launcher.communicate(timeout=400)
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)
    assert launcher.returncode == 0, output
    return RunFolder(folder)


def test_only_lost_workers_lose_steps_and_none_is_repeated(run: RunFolder):
    incomplete, lost = set(), set()
    for worker in range(3):
        events = run.events(worker)
        steps = [event.step for event in events if isinstance(event, StepDone)]
        assert all(earlier < later for earlier, later in itertools.pairwise(steps))
        assert steps[-1] == STEPS
        if len(steps) < STEPS:
            incomplete.add(f"worker {worker}")
        lost |= {
            name.partition(" on ")[0] for event in events if isinstance(event, WorkersLost) for name in event.workers
        }
    assert incomplete <= lost
    assert len(lost) < 3


def test_the_lost_worker_joins_the_others_before_the_end(run: RunFolder):
    worlds = [event for worker in range(3) for event in run.events(worker) if isinstance(event, WorldChanged)]
    assert any(len(event.workers) == 3 and event.step < STEPS for event in worlds)


def test_all_have_the_same_weights_at_the_end(run: RunFolder):
    events = [event for worker in range(3) for event in run.events(worker)]
    assert not any(isinstance(event, ReplicasDrifted) for event in events)
