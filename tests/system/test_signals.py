"""Commands in the background: `nohup` and a shell's `&` start them with SIGHUP and SIGINT ignored."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from dragoman.errors import EXIT_RESUMABLE
from dragoman.events import CheckpointSaved, RunEnded
from dragoman.run_folder import RunFolder

from ..insight.synthetic_runs import synthetic_run, write_run
from ..processes import losses, wait_for_steps
from ..serving.conftest import exports  # noqa: F401 (a fixture)
from ..small import TINY
from .test_serving import Server

pytestmark = pytest.mark.system

LONG = ("training.steps=100000", "evaluation.every=100000", "checkpoint.every=100000", "evaluation.bleu=false")
IGNORING = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh")
"""Starts a command as `nohup COMMAND &` does in a script."""


def start(
    words: Sequence[str], *, prefix: Sequence[str] = (), stdout: int = subprocess.PIPE
) -> "subprocess.Popen[str]":
    """A command under way, in a session of its own."""
    command = [*prefix, sys.executable, "-m", "dragoman", *words]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def train_words(data: Path, run: Path) -> list[str]:
    return ["train", "tiny", "--data", str(data), "--out", str(run), *TINY, *LONG]


def send_to_group(process: "subprocess.Popen[str]", *numbers: signal.Signals) -> None:
    """Send signals to a command and all its processes, as a terminal does."""
    for number in numbers:
        os.killpg(process.pid, number)


def assert_saved_and_interrupted(run: Path) -> None:
    events = RunFolder(run).events()
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.reason for event in ended] == ["interrupted"]
    saved = [event.step for event in events if isinstance(event, CheckpointSaved)]
    assert saved[-1] == max(losses(run))


@pytest.mark.parametrize("command", ["train", "launch"])
def test_training_in_the_background_ignores_hang_ups_and_ctrl_c_and_saves_on_sigterm(data, tmp_path, command):
    words = train_words(data.path, tmp_path / "run")
    by_command = {"train": [*words, "--workers", "2"], "launch": ["launch", "--hosts", "localhost:2", "--", *words]}
    process = start(by_command[command], prefix=IGNORING)
    wait_for_steps(tmp_path / "run", 3, process)
    send_to_group(process, signal.SIGHUP, signal.SIGINT, signal.SIGHUP, signal.SIGINT)
    wait_for_steps(tmp_path / "run", max(losses(tmp_path / "run"), default=0) + 20, process)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == EXIT_RESUMABLE, output
    assert_saved_and_interrupted(tmp_path / "run")


def test_training_saves_when_its_terminal_is_closed(data, tmp_path):
    ours, theirs = pty.openpty()
    process = start([*train_words(data.path, tmp_path / "run"), "--workers", "2"], stdout=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    while process.poll() is None and max(losses(tmp_path / "run"), default=0) < 3:
        drain(ours)
        time.sleep(0.05)
    os.close(ours)  # From now on nothing can be written to it.
    send_to_group(process, signal.SIGHUP)
    process.wait(timeout=60)
    assert_saved_and_interrupted(tmp_path / "run")


def drain(terminal: int) -> None:
    """Read what was written to a terminal, or its writers would wait."""
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        return


@pytest.mark.parametrize("command", ["serve", "watch"])
def test_servers_in_the_background_ignore_hang_ups_and_end_on_sigterm(tmp_path, exports, command):  # noqa: F811
    if command == "serve":
        server = Server(str(exports[0]), prefix=IGNORING)
        process, url = server.process, server.url
    else:
        write_run(tmp_path / "run", synthetic_run(20))
        process = start(["watch", str(tmp_path / "run"), "--port", "0"], prefix=IGNORING)
        url = re.search(r"http://\S+", process.stdout.readline())[0]
    process.send_signal(signal.SIGHUP)
    assert httpx.get(url, timeout=60).status_code == 200
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)
