"""An agent without a launcher: its replies, and the fate of its workers."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.code_version import dragoman_version

from .agent_process import AgentProcess


@pytest.fixture
def agent() -> Iterator[AgentProcess]:
    made = AgentProcess()
    yield made
    made.close()


def test_a_handshake_reports_the_version_and_enters_the_folder(agent, tmp_path):
    reply = agent.request("handshake", folder=str(tmp_path / "new"), make=True, secret="secret")
    assert reply["dragoman"] == dragoman_version()
    assert reply["folder"] == str(tmp_path / "new")
    assert agent.request("handshake", folder=str(tmp_path / "none"), make=False, secret="secret")["folder"] == str(
        Path.home()
    )


def test_it_finds_the_addresses_at_which_it_reaches_other_agents(agent, tmp_path):
    other, stranger = AgentProcess(), AgentProcess()
    for each, secret in ((agent, "secret"), (other, "secret"), (stranger, "another secret")):
        each.request("handshake", folder=str(tmp_path), make=False, secret=secret)
    peer, foreign = other.request("open_identity_server"), stranger.request("open_identity_server")
    real = {"addresses": [["lo", "127.0.0.1"]], "port": peer["port"], "name": peer["name"]}
    peers = {
        "real": real,
        "impostor": {**real, "name": "another"},
        "stranger": {**real, "port": foreign["port"], "name": foreign["name"]},
        "closed": {**real, "port": agent.request("free_port", address="127.0.0.1")["port"]},
    }
    reached = agent.request("reach", peers=peers)
    assert reached == {"real": ["127.0.0.1"], "impostor": [], "stranger": [], "closed": []}
    other.send("close_servers")
    other.request("worker_states")
    assert agent.request("reach", peers={"real": real}) == {"real": []}
    other.close()
    stranger.close()


def test_it_relays_the_output_of_a_worker_and_its_exit_code(agent):
    agent.start("config", "nowhere")
    messages = [agent.receive(), agent.receive()]
    assert messages[0]["stream"] == "err"
    assert "nowhere" in messages[0]["line"]
    assert messages[1] == {"exit": 2, "rank": 0, "restart": False, "short_lives": 1}


def test_a_module_that_fails_is_reported_with_its_last_line(agent):
    reply = agent.request("run_module", module="dragoman.no_such_module", job={})
    assert "No module named dragoman.no_such_module" in reply["problem"]


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_worker_ends_with_its_agent_or_with_the_launcher(agent, number, tmp_path):
    """The worker reads a recipe from a pipe without a writer: it would wait for ever."""
    os.mkfifo(tmp_path / "never")
    agent.start("config", str(tmp_path / "never"))
    worker = agent.wait_for_worker()
    if number is None:
        agent.process.stdin.close()
    else:
        agent.process.send_signal(number)
    agent.process.wait(timeout=20)
    worker.wait(timeout=20)


def test_an_agent_exits_when_the_launcher_is_silent(tmp_path):
    agent = AgentProcess(silence_s=0.5)
    os.mkfifo(tmp_path / "never")
    agent.start("config", str(tmp_path / "never"))
    agent.process.wait(timeout=20)
    agent.close()


@pytest.mark.parametrize("elastic", [False, True])
def test_a_second_launch_of_a_run_stops_the_first(agent, tmp_path, elastic):
    other = AgentProcess()
    for each in (agent, other):
        each.request("handshake", folder=str(tmp_path), make=False, secret="secret")
    agent.start("train", "never", "--data", "data", "--out", "run", elastic=elastic)
    started = agent.wait_for_fork_server() if elastic else agent.wait_for_worker()
    assert other.request("stop_earlier", run="another") == {"stopped": 0}
    assert other.request("stop_earlier", run="run") == {"stopped": 1}
    agent.process.wait(timeout=20)
    started.wait(timeout=20)
    other.close()
