"""Other machines, by the OpenSSH client. Users, ports, keys and jump hosts are those of its own configuration."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import DragomanError

CONNECT_S = 10
SILENCE_S = 30
"""A machine from which nothing was heard for so long is lost."""
_HOST = re.compile(r"(?P<name>(?:\w[\w.-]*@)?\w[\w.-]*)(?::(?P<workers>[1-9]\d{0,2}))?")


@dataclass(frozen=True)
class Machine:
    """One of `--hosts`."""

    name: str
    """As ssh is told it: a name of its configuration, a host name, or user@host."""
    workers: int | None = None
    """Workers there; None is one for each GPU, or one."""

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, which needs no ssh."""
        here = socket.gethostname()
        return self.name in {"localhost", here, here.partition(".")[0]}


def parse_hosts(text: str) -> list[Machine]:
    """Read `a,b:2,user@c:4`."""
    machines = []
    for word in text.split(","):
        match = _HOST.fullmatch(word.strip())
        if match is None:
            raise DragomanError(f"'{word}' in --hosts is no host: write a name, b:2 for two workers, or user@c:4.")
        machines.append(Machine(match["name"], int(match["workers"]) if match["workers"] else None))
    names = [machine.name for machine in machines]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise DragomanError(
            f"--hosts names {', '.join(sorted(twice))} twice: write {min(twice)}:2 for two workers there."
        )
    return machines


@dataclass(frozen=True)
class Client:
    """How this machine's ssh is to be called, and which Python the others are to use."""

    config: Path | None = None
    """An ssh configuration to use instead of the user's own."""
    python: str = sys.executable

    def command(self, machine: Machine, words: Sequence[str]) -> list[str]:
        """What to run here so that a command runs on a machine."""
        if machine.is_here:
            return list(words)
        return [*self._ssh(), "-T", "--", machine.name, shlex.join(words)]

    def module(self, machine: Machine, name: str, *words: str) -> list[str]:
        """The same for a module of Dragoman."""
        return self.command(machine, [self.python, "-m", name, *words])

    def push(self, machine: Machine, source: Path, target: str, *, show_progress: bool) -> None:
        """Copy a file, or what is in a folder, to a machine. What was copied before is not sent again."""
        if shutil.which("rsync") is None:
            raise DragomanError("--push needs rsync: install it here and on the hosts, or copy the data yourself.")
        progress = ["--info=progress2"] if show_progress else []
        name = f"{source}/" if source.is_dir() else str(source)
        command = ["rsync", "--archive", "--partial", "--mkpath", "--rsh", shlex.join(self._ssh()), *progress, "--"]
        done = subprocess.run(
            [*command, name, f"{machine.name}:{target}"], stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise DragomanError(
                f"{source} could not be copied to {machine.name} ({_last_line(done.stderr)}): the same command goes on "
                "with the copy."
            )

    def _ssh(self) -> list[str]:
        config = [] if self.config is None else ["-F", str(self.config)]
        # Several connections at once cannot all ask for a password.
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": str(SILENCE_S // 6),
            "ServerAliveCountMax": "6",
        }
        return ["ssh", *config, *(f"-o{name}={value}" for name, value in options.items())]


def explain(machine: Machine, python: str, said: str) -> str:
    """Why a machine did not answer, from what ssh or its shell said, with the remedy."""
    reason = _last_line(said)
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, said):
            return f"{reason}: {remedy.format(name=machine.name, python=python)}"
    return f"{reason}: try `ssh {machine.name}`"


_REMEDIES = (
    (r"Host key verification failed", "connect once with `ssh {name}`, compare the key, and confirm it"),
    (r"Permission denied", "bring your key there with `ssh-copy-id {name}`, and load it with `ssh-add`"),
    (r"Could not resolve", "check the name in --hosts and in your ssh configuration"),
    (
        r"timed out|refused|No route|unreachable|not responding",
        "check that it runs, and that its sshd can be reached from here",
    ),
    (
        r"No module named '?dragoman|No such file|not found",
        "install Dragoman there, or name the Python that has it with --python (now {python})",
    ),
)


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else "no reason was given"
