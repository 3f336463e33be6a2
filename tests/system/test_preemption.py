"""Runs whose machine is taken away: they save on SIGTERM, a supervisor starts them again, and nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.errors import EXIT_RESUMABLE
from dragoman.events import CheckpointSaved, RunEnded, RunStarted, StepDone
from dragoman.run_folder import RunFolder

from ..processes import losses, start, train, wait_for_steps
from ..small import TINY
from ..test_examples import MACHINES

pytestmark = pytest.mark.system

STEPS = 600
"""Enough that a run does not end before it is stopped; each step takes a few milliseconds."""
RARE = (f"training.steps={STEPS}", "evaluation.every=1000000", "checkpoint.every=1000000", "evaluation.bleu=false")
"""Only the signal and the end save."""


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory) -> dict[int, float]:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(data.path, run, *RARE, workers=1)
    return losses(run)


def assert_nothing_was_lost(run: Path, undisturbed: dict[int, float], preemptions: int) -> None:
    """Every step was done exactly once, with the loss of an undisturbed run, and each session began where one ended."""
    events = RunFolder(run).events()
    assert [event.step for event in events if isinstance(event, StepDone)] == list(range(1, STEPS + 1))
    assert losses(run) == undisturbed
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.reason for event in ended] == ["interrupted"] * preemptions + ["finished"]
    resumed = [event.resumed_step for event in events if isinstance(event, RunStarted)]
    assert resumed == [0, *(event.step for event in ended[:-1])]
    assert {event.step for event in ended} <= {event.step for event in events if isinstance(event, CheckpointSaved)}


def test_a_preempted_run_is_restarted_by_its_exit_code_and_loses_nothing(data, tmp_path, undisturbed):
    run, codes = tmp_path / "run", []
    for preempted_at in (60, 200, None):  # As a supervisor: start the same command until it exits with 0.
        process = start(data.path, run, *RARE, workers=1)
        if preempted_at is not None:
            wait_for_steps(run, preempted_at, process)
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        codes.append(process.returncode)
    assert codes == [EXIT_RESUMABLE] * 2 + [0]
    assert_nothing_was_lost(run, undisturbed, preemptions=2)


def test_a_spot_machine_saves_at_the_notice_and_resumes_there_or_on_its_successor(data, tmp_path, undisturbed):
    run, notice = tmp_path / "run", tmp_path / "notice"
    machine = start_on_spot_machine(data.path, run, notice)
    wait_for_steps(run, 60, machine)
    notice.touch()
    wait_for_end(run, machine)
    notice.unlink()  # The machine was spared.
    wait_for_steps(run, max(losses(run)) + 20, machine)
    machine.send_signal(signal.SIGTERM)  # It is shut down after all.
    output, _ = machine.communicate(timeout=120)
    assert machine.returncode == EXIT_RESUMABLE, output
    assert "The machine will be taken away: saving." in output
    successor = start_on_spot_machine(data.path, run, notice)
    output, _ = successor.communicate(timeout=120)
    assert successor.returncode == 0, output
    assert_nothing_was_lost(run, undisturbed, preemptions=2)


def test_a_spot_machine_that_is_shut_down_during_the_notice_does_not_start_the_run_again(tmp_path):
    notice, starts, program = tmp_path / "notice", tmp_path / "starts", tmp_path / "bin" / "dragoman"
    program.parent.mkdir()
    run = f"trap 'exit {EXIT_RESUMABLE}' TERM\necho >> '{starts}'\nwhile :; do sleep 0.05; done\n"
    program.write_text(f"#!/bin/sh\n{run}")
    program.chmod(0o755)
    machine = start_spot_script(["train"], notice, program.parent)
    wait_until(starts.exists, machine)
    notice.touch()
    assert machine.stdout is not None
    assert machine.stdout.readline() == "The machine will be taken away: saving.\n"
    time.sleep(1)  # The run has ended, and the script waits for the end of the notice.
    machine.send_signal(signal.SIGTERM)
    output, _ = machine.communicate(timeout=20)
    assert machine.returncode == EXIT_RESUMABLE, output
    assert output == ""
    assert starts.read_text() == "\n", "started once"


def start_on_spot_machine(data: Path, run: Path, notice: Path) -> "subprocess.Popen[str]":
    words = ["train", "tiny", "--data", str(data), "--out", str(run), *TINY, *RARE]
    return start_spot_script(words, notice, Path(sys.executable).parent)


def start_spot_script(words: list[str], notice: Path, programs: Path) -> "subprocess.Popen[str]":
    """Start the example script with the `dragoman` in a folder. A file stands for the notice of the cloud."""
    return subprocess.Popen(
        [str(MACHINES / "spot.sh"), *words],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SPOT_NOTICE": f"test -e '{notice}'"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for_end(run: Path, process: "subprocess.Popen[str]") -> None:
    wait_until(lambda: any(isinstance(event, RunEnded) for event in RunFolder(run).events()), process)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and not condition():
        time.sleep(0.05)
