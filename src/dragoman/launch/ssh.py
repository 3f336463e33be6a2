"""Run commands on other machines with the OpenSSH client, whose own configuration gives users, ports and keys."""

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
"""A machine that has sent nothing for this long is lost."""
_HOST = re.compile(r"(?P<name>(?:\w[\w.-]*@)?\w[\w.-]*)(?::(?P<workers>[1-9]\d{0,2}))?")


@dataclass(frozen=True)
class Machine:
    """One of `--hosts`."""

    name: str
    """As given to ssh: a name in its configuration, a host name, or user@host."""
    workers: int | None = None
    """Number of workers; None is one per GPU, or one on a machine without GPUs."""

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, which needs no ssh."""
        here = socket.gethostname()
        return self.name in {"localhost", here, here.partition(".")[0]}


def parse_hosts(text: str) -> list[Machine]:
    """Parse `a,b:2,user@c:4`."""
    machines = []
    for item in text.split(","):
        match = _HOST.fullmatch(item.strip())
        if match is None:
            raise DragomanError(f"--hosts: '{item}' is not a host. Write a name, b:2 for two workers, or user@c:4.")
        machines.append(Machine(match["name"], int(match["workers"]) if match["workers"] else None))
    # All names of this machine are one host.
    names = ["localhost" if machine.is_local else machine.name for machine in machines]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise DragomanError(
            f"--hosts names {', '.join(sorted(repeated))} twice: write {min(repeated)} once, or {min(repeated)}:2 for "
            "two workers there."
        )
    return machines


@dataclass(frozen=True)
class SshClient:
    """Options for ssh, and the Python interpreter that the hosts use."""

    config: Path | None = None
    """An ssh configuration file to use instead of the user's."""
    python: str = sys.executable

    def command(self, machine: Machine, command: Sequence[str]) -> list[str]:
        """The command to run here so that `command` runs on a machine."""
        if machine.is_local:
            return list(command)
        return [*self._ssh(), "-T", "--", machine.name, shlex.join(command)]

    def module(self, machine: Machine, name: str, *arguments: str) -> list[str]:
        """The same for a module of Dragoman."""
        return self.command(machine, [self.python, "-m", name, *arguments])

    def push(self, machine: Machine, source: Path, target: str, *, show_progress: bool) -> None:
        """Copy a file, or the contents of a folder, to a machine. Files that are already there are not sent again."""
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
                f"{source} could not be copied to {machine.name} ({_last_line(done.stderr)}): run the same command "
                "again to resume the copy."
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


def explain(machine: Machine, python: str, output: str) -> str:
    """Why a machine did not answer, from the output of ssh or of its shell, with a remedy if one is known."""
    reason = _last_line(output)
    for pattern, remedy in (*(() if machine.is_local else _SSH_REMEDIES), *_INSTALL_REMEDIES):
        if re.search(pattern, output):
            return f"{reason}: {remedy.format(name=machine.name, python=python)}"
    return reason if machine.is_local else f"{reason}: try `ssh {machine.name}`"


_SSH_REMEDIES = (
    (r"Host key verification failed", "connect once with `ssh {name}`, compare the key, and confirm it"),
    (r"Permission denied", "install your key there with `ssh-copy-id {name}`, and load it with `ssh-add`"),
    (r"Could not resolve", "check the name in --hosts and in your ssh configuration"),
    (
        r"timed out|refused|No route|unreachable|not responding",
        "check that it is up, and that its sshd can be reached from here",
    ),
)
_INSTALL_REMEDIES = (
    (
        r"No module named '?dragoman|No such file|not found",
        "install Dragoman there, or set --python to an interpreter that has it (now {python})",
    ),
    (r"No module named", "run `{python} -m pip install 'dragoman[train]'` there"),
)


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2].strip().rstrip(".") or "no reason was given"
