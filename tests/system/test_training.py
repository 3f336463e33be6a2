"""`dragoman train` with several worker processes: loss curves, signals, kills, full disks."""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dragoman.corpus.dataset import MANIFEST_FILE
from dragoman.errors import EXIT_RESUMABLE, EXIT_USER_ERROR
from dragoman.events import CheckpointSaved, RunEnded, RunStarted, StepDone
from dragoman.files import read_json, write_json
from dragoman.run_folder import RunFolder

from ..processes import losses, start, train, wait_for_steps
from ..small import TINY

pytestmark = pytest.mark.system


EXACT_SETTINGS = (
    "model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1", "training.steps=50",
    "evaluation.every=50", "evaluation.bleu=false",
)  # fmt: skip
RESUME_SETTINGS = ("training.steps=120", "checkpoint.every=7", "evaluation.every=60", "evaluation.bleu=false")


@pytest.fixture(scope="module")
def one_worker_losses(data, tmp_path_factory) -> dict[int, float]:
    """Losses of a run with one worker."""
    run = tmp_path_factory.mktemp("one") / "run"
    train(data.path, run, *EXACT_SETTINGS, workers=1)
    return losses(run)


@pytest.fixture(scope="module")
def uninterrupted_losses(data, tmp_path_factory) -> dict[int, float]:
    """Losses of a run with two workers and no interruption."""
    run = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(data.path, run, *RESUME_SETTINGS)
    return losses(run)


@pytest.mark.parametrize("shares", ["equal", "[3,1]"])
def test_loss_curve_of_two_workers_equals_that_of_one(data, tmp_path, one_worker_losses, shares):
    train(data.path, tmp_path / "two", *EXACT_SETTINGS, f"training.shares={shares}")
    two = losses(tmp_path / "two")
    assert len(one_worker_losses) == 50
    assert two == pytest.approx(one_worker_losses, rel=1e-4)
    tokens = [
        [
            (event.target_tokens, event.pairs)
            for event in RunFolder(tmp_path / "two").events(rank)
            if isinstance(event, StepDone)
        ]
        for rank in (0, 1)
    ]
    assert tokens[0] == tokens[1]


def test_run_killed_several_times_has_bitwise_identical_losses(data, tmp_path, uninterrupted_losses):
    run = tmp_path / "killed"
    rng = random.Random(3)
    for kill in range(3):
        process = start(data.path, run, *RESUME_SETTINGS)
        wait_for_steps(run, (kill + 1) * 25, process)
        time.sleep(rng.uniform(0, 0.3))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    train(data.path, run, *RESUME_SETTINGS)
    assert losses(run) == uninterrupted_losses
    starts = [event.resumed_step for event in RunFolder(run).events() if isinstance(event, RunStarted)]
    assert starts == sorted(starts)
    assert starts[-1] > 0


def test_killed_worker_is_restarted_and_losses_are_identical(data, tmp_path, uninterrupted_losses):
    process = start(data.path, tmp_path / "run", *RESUME_SETTINGS)
    wait_for_steps(tmp_path / "run", 25, process)
    worker_pid = max(int(pid) for pid in _worker_pids(process.pid))
    os.kill(worker_pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert losses(tmp_path / "run") == uninterrupted_losses


def _worker_pids(pid: int) -> Iterator[str]:
    for child in psutil.Process(pid).children(recursive=True):
        if any("spawn_main" in argument for argument in child.cmdline()):
            yield str(child.pid)


# SIGTERM to a command with several workers is tested in test_signals.py.
@pytest.mark.parametrize(("workers", "signal_number"), [(1, signal.SIGINT), (2, signal.SIGINT), (1, signal.SIGTERM)])
def test_train_finishes_the_step_saves_and_exits_with_75_on_a_signal(data, tmp_path, workers, signal_number):
    process = start(data.path, tmp_path / "run", "training.steps=100000", workers=workers)
    wait_for_steps(tmp_path / "run", 6, process)
    process.send_signal(signal_number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_RESUMABLE, output
    assert "Run the same command again to resume." in output
    events = RunFolder(tmp_path / "run").events()
    assert isinstance(events[-1], RunEnded)
    assert events[-1].reason == "interrupted"
    saved = [event.step for event in events if isinstance(event, CheckpointSaved)]
    assert saved[-1] == max(losses(tmp_path / "run"))


def test_train_joins_the_process_group_of_torchrun(data, tmp_path):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    train(data.path, tmp_path / "run", "evaluation.bleu=false", launcher=launcher)
    started = next(event for event in RunFolder(tmp_path / "run").events() if isinstance(event, RunStarted))
    assert started.world_size == 2


def train_as_srun(run: Path, *data: Path) -> list[subprocess.Popen[str]]:
    """Start one worker for each data set, in a world as srun describes it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    size = str(len(data))
    world = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "dragoman", "train", "tiny", "--out", str(run), *TINY, "--data"]
    return [
        subprocess.Popen(
            [*command, str(path)],
            env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, path in enumerate(data)
    ]


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("0123456789abcdef", r"error: Worker 1 on \S+ does not match worker 0 on \S+: data set 0123456789ab, not "),
        (None, r"error: Worker 1 on \S+: \S+ is not a prepared data set"),
    ],
)
def test_a_worker_with_other_data_or_none_is_named_before_anything_is_written(data, tmp_path, identity, expected):
    other = tmp_path / "other"
    shutil.copytree(data.path, other)
    if identity is None:
        (other / MANIFEST_FILE).unlink()
    else:
        write_json(other / MANIFEST_FILE, {**read_json(other / MANIFEST_FILE), "identity": identity})
    for process in train_as_srun(tmp_path / "run", data.path, other):
        _, error = process.communicate(timeout=120)
        assert process.returncode == EXIT_USER_ERROR
        assert re.search(expected, error)
        assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """File system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_training_continues_on_a_full_disk_and_keeps_earlier_checkpoints(data, small_disk):
    run = small_disk / "run"
    checkpoints, ballast = run / "checkpoints", small_disk / "ballast"
    train(data.path, run, "training.steps=4", "evaluation.bleu=false", workers=1)
    disk = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * ((disk.f_bavail - 2) * disk.f_frsize))  # Leaves room for the settings only.
    with pytest.raises(AssertionError) as failure:
        train(data.path, run, "evaluation.bleu=false")
    output = str(failure.value)
    assert "could not be written" in output
    assert "free some disk space" in output
    assert "Finished after 12 steps" in output
    assert "error: The last checkpoint could not be written" in output
    assert (checkpoints / "last").resolve().name == "step-00000004"
    ballast.unlink()
    train(data.path, run, "training.steps=13", "checkpoint.keep_last=1", "evaluation.bleu=false", workers=1)
    assert (checkpoints / "last").resolve().name == "step-00000013"
    assert max(losses(run)) == 13


def test_run_without_any_checkpoint_saved_writes_no_averaged_checkpoint(data, small_disk):
    (small_disk / "ballast").write_bytes(b"x" * (7 << 20))
    wide_model = ("model.feed_forward=8192", "checkpoint.average=2", "evaluation.bleu=false")
    with pytest.raises(AssertionError) as failure:
        train(data.path, small_disk / "run", *wide_model)
    assert "Finished after 12 steps" in str(failure.value)
    assert "error: The last checkpoint could not be written" in str(failure.value)
    assert not (small_disk / "run" / "checkpoints" / "averaged").exists()


def test_sigint_stops_workers_that_are_still_starting(data, tmp_path):
    process = start(data.path, tmp_path / "run", "training.steps=100000")
    wait_for_workers(process)
    os.killpg(process.pid, signal.SIGINT)  # to the process group, as a terminal does
    output, _ = process.communicate(timeout=60)
    assert "A worker was lost" not in output
    assert len(losses(tmp_path / "run")) < 20


def test_workers_end_with_the_process_that_started_them(data, tmp_path):
    process = start(data.path, tmp_path / "run", "training.steps=100000")
    workers = wait_for_workers(process)
    process.kill()
    process.communicate()
    ended, alive = psutil.wait_procs(workers, timeout=60)
    assert len(ended) >= 2
    assert alive == []


def wait_for_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until two worker processes exist."""
    while process.poll() is None:
        workers = [
            child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        if len(workers) >= 2:
            return workers
        time.sleep(0.05)
    raise AssertionError(process.communicate()[0])


def test_second_process_cannot_train_the_same_run(data, tmp_path):
    process = start(data.path, tmp_path / "run", "training.steps=100000", workers=1)
    wait_for_steps(tmp_path / "run", 2, process)
    with pytest.raises(AssertionError, match="is being trained by another process"):
        train(data.path, tmp_path / "run", "training.steps=100000", workers=1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    steps = [event.step for event in RunFolder(tmp_path / "run").events() if isinstance(event, StepDone)]
    assert steps == list(range(1, len(steps) + 1))


def test_resuming_with_another_model_is_rejected(data, tmp_path):
    train(data.path, tmp_path / "run", "training.steps=1", "evaluation.bleu=false", workers=1)
    process = start(data.path, tmp_path / "run", "model.d_model=64", "model.heads=4", workers=1)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "model.d_model was 32, not 64" in output
    assert "Traceback" not in output
