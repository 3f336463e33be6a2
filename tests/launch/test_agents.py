import sys

import pytest

from dragoman.code_version import dragoman_version
from dragoman.errors import DragomanError
from dragoman.launch.agents import Agents, HostLostError
from dragoman.launch.ssh import Machine, SshClient

HERE = [Machine("localhost")]


def test_a_login_banner_does_no_harm(tmp_path):
    shell = tmp_path / "python"
    shell.write_text(f'#!/bin/sh\necho Welcome.\necho "[1]"\nexec {sys.executable} "$@"\n')
    shell.chmod(0o755)
    with Agents(HERE, SshClient(python=str(shell))) as agents:
        reply = agents.by_host["localhost"].request("handshake", folder="~", make=False, secret="secret")
        assert reply["dragoman"] == dragoman_version()
        assert agents.messages.empty()


def test_a_missing_python_interpreter_is_an_error_with_a_remedy():
    with pytest.raises(DragomanError, match="/nowhere/python is not on this machine: install it, or check --python"):
        Agents(HERE, SshClient(python="/nowhere/python"))


def test_a_lost_host_is_reported_with_the_reason():
    with Agents(HERE, SshClient()) as agents:
        replies, lost = agents.request_all(["localhost"], "handshake", folder="~", make=False, secret="secret")
        assert set(replies) == {"localhost"}
        assert lost == {}
        agents.by_host["localhost"]._process.kill()
        with pytest.raises(HostLostError, match="no reason was given"):
            agents.by_host["localhost"].request("free_port", address="127.0.0.1")
        assert agents.messages.get(timeout=20) == ("localhost", {"lost": True})
