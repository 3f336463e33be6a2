import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.launch.ssh import Machine, SshClient, explain, parse_hosts

NAMES = st.from_regex(r"([a-z][a-z0-9.-]{0,8}@)?[a-z0-9][a-z0-9.-]{0,12}", fullmatch=True)


@given(st.dictionaries(NAMES, st.none() | st.integers(1, 999), min_size=1, max_size=5))
def test_a_list_of_hosts_is_parsed(workers):
    text = ",".join(name if count is None else f"{name}:{count}" for name, count in workers.items())
    assert parse_hosts(text) == [Machine(name, count) for name, count in workers.items()]


@pytest.mark.parametrize(
    "text", ["", "a,", "a:0", "a:x", "a b", "-oProxyCommand=evil", "-l@b", "a:1000", "a;b", "a:2:3"]
)
def test_anything_but_a_host_is_refused(text):
    with pytest.raises(DragomanError, match="is not a host"):
        parse_hosts(text)


def test_a_repeated_host_is_refused():
    with pytest.raises(DragomanError, match="names localhost twice: write localhost once, or localhost:2 for"):
        parse_hosts(f"localhost,{socket.gethostname()}")
    with pytest.raises(DragomanError, match="names a twice: write a once, or a:2 for"):
        parse_hosts("a,b,a")


def test_this_machine_is_used_without_ssh():
    client = SshClient(python="/opt/python")
    for name in ("localhost", socket.gethostname()):
        assert client.module(Machine(name), "dragoman") == ["/opt/python", "-m", "dragoman"]


def test_a_remote_command_is_quoted_for_the_shell():
    command = SshClient().command(Machine("me@far"), ["echo", "two words", "$HOME;"])
    assert command[0] == "ssh"
    assert command[-3:] == ["--", "me@far", "echo 'two words' '$HOME;'"]


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("Warning: x\nme@far: Permission denied (publickey).", "ssh-copy-id far"),
        ("No ED25519 host key is known\nHost key verification failed.", "compare the key"),
        ("ssh: Could not resolve hostname far: Name or service not known", "check the name"),
        ("ssh: connect to host far port 22: Connection timed out", "check that it is up"),
        ("Timeout, server far not responding.", "not responding: check that it is up"),
        ("bash: line 1: /opt/python: No such file or directory", "set --python to an interpreter that has it (now"),
        ("/usr/bin/python3: No module named dragoman", "install Dragoman there"),
        ("ModuleNotFoundError: No module named 'psutil'", "/opt/python -m pip install 'dragoman[train]'` there"),
        ("something else", "try `ssh far`"),
        ("", "try `ssh far`"),
    ],
)
def test_a_host_that_does_not_answer_is_explained_with_a_remedy(output, remedy):
    assert remedy in explain(Machine("far"), "/opt/python", output)
    assert not re.search("ssh [^:]|ssh-|sshd", explain(Machine("localhost"), "/opt/python", output))
