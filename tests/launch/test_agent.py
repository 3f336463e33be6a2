"""An agent by itself: what it answers, and what becomes of its workers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dragoman.errors import DragomanError
from dragoman.launch.agent import dragoman_version
from dragoman.launch.agents import Agents, HostLostError
from dragoman.launch.ssh import Client, Machine


class Conversation:
    """An agent in a process of its own, spoken to as the launcher does."""

    def __init__(self, silence_s: float = 30) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.launch.agent", str(silence_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, question: str, **details: object) -> None:
        self.process.stdin.write(json.dumps({"ask": question, "serial": 1, **details}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, object]:
        return json.loads(self.process.stdout.readline())

    def ask(self, question: str, **details: object) -> dict[str, object]:
        self.tell(question, **details)
        return self.hear()["answer"]

    def close(self) -> None:
        with self.process:
            self.process.kill()

    def start(self, *words: str, elastic: bool = False) -> None:
        self.tell("start", words=words, worlds=[{"RANK": "0"}], run="run", elastic=elastic)


@pytest.fixture
def agent() -> Iterator[Conversation]:
    conversation = Conversation()
    yield conversation
    conversation.close()


def test_it_says_who_it_is_and_where(agent, tmp_path):
    hello = agent.ask("hello", folder=str(tmp_path / "new"), make=True)
    assert hello["dragoman"] == dragoman_version()
    assert hello["folder"] == str(tmp_path / "new")
    assert agent.ask("hello", folder=str(tmp_path / "none"), make=False)["folder"] == str(Path.home())


def test_it_finds_by_which_addresses_others_are_reached(agent):
    other = Conversation()
    peer = other.ask("listen")
    liar = {"addresses": [["lo", "127.0.0.1"]], "port": peer["port"], "word": "another"}
    truth = {**liar, "word": peer["word"]}
    nobody = {**truth, "port": agent.ask("port")["port"]}
    reached = agent.ask("reach", peers={"liar": liar, "truth": truth, "nobody": nobody})
    assert reached == {"liar": [], "truth": ["127.0.0.1"], "nobody": []}
    other.close()


def test_it_passes_on_what_a_worker_says_and_its_end(agent):
    agent.start("config", "nowhere")
    messages = [agent.hear(), agent.hear()]
    assert messages[0]["stream"] == "err"
    assert "nowhere" in messages[0]["line"]
    assert messages[1] == {"exit": 2, "rank": 0, "again": False}


def children_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    while not (children := psutil.Process(process.pid).children()):
        time.sleep(0.01)
    return children


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_worker_ends_with_its_agent_or_with_the_launcher(agent, number, tmp_path):
    """It waits for a recipe that nobody writes: left alone it would stay for ever."""
    os.mkfifo(tmp_path / "never")
    agent.start("config", str(tmp_path / "never"))
    [worker] = children_of(agent.process)
    if number is None:
        agent.process.stdin.close()
    else:
        agent.process.send_signal(number)
    agent.process.wait(timeout=20)
    worker.wait(timeout=20)


def test_silence_means_that_the_launcher_is_gone(tmp_path):
    conversation = Conversation(silence_s=0.5)
    os.mkfifo(tmp_path / "never")
    conversation.start("config", str(tmp_path / "never"))
    conversation.process.wait(timeout=20)
    conversation.close()


def test_a_job_may_outlive_its_launcher(agent, tmp_path):
    os.mkfifo(tmp_path / "never")
    agent.start("config", str(tmp_path / "never"), elastic=True)
    [worker] = children_of(agent.process)
    agent.process.stdin.close()
    with pytest.raises(psutil.TimeoutExpired):
        worker.wait(timeout=0.5)
    assert agent.process.poll() is None


def test_a_second_launch_lets_the_first_leave(agent, tmp_path):
    os.mkfifo(tmp_path / "never")
    other = Conversation()
    for each in (agent, other):
        each.ask("hello", folder=str(tmp_path), make=False)
    agent.start("train", "never", "--data", "data", "--out", "run", elastic=True)
    [worker] = children_of(agent.process)
    while "train" not in worker.cmdline():
        time.sleep(0.01)
    assert other.ask("clear", run="another") == {"cleared": 0}
    assert other.ask("clear", run="run") == {"cleared": 1}
    agent.process.wait(timeout=20)
    worker.wait(timeout=20)
    other.close()


def test_a_shell_that_greets_does_no_harm(tmp_path):
    shell = tmp_path / "python"
    shell.write_text(f'#!/bin/sh\necho Welcome, stranger.\necho "[1]"\nexec {sys.executable} "$@"\n')
    shell.chmod(0o755)
    with Agents([Machine("localhost")], Client(python=str(shell))) as crew:
        assert crew.agents["localhost"].ask("hello", folder="~", make=False)["dragoman"] == dragoman_version()
        assert crew.events.empty()


def test_a_python_that_is_not_there_is_a_sentence():
    with pytest.raises(DragomanError, match="There is no /nowhere/python on this machine"):
        Agents([Machine("localhost")], Client(python="/nowhere/python"))


def test_a_crew_says_which_host_was_lost_and_why():
    with Agents([Machine("localhost")], Client()) as crew:
        answers, lost = crew.ask_all({"localhost": ("hello", {"folder": "~", "make": False})})
        assert set(answers) == {"localhost"}
        assert lost == {}
        crew.agents["localhost"]._process.kill()
        with pytest.raises(HostLostError, match="no reason was given"):
            crew.agents["localhost"].ask("port")
