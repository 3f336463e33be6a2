"""The process that runs on each host: answers the launcher's requests, starts workers, and relays their output.

Requests arrive on standard input and replies go to standard output, one JSON object per line. When the input ends, or
nothing arrives for a while, the launcher is gone: the workers are asked to save and exit, and are killed if they do
not. Workers of an elastic run continue without the launcher. Only the standard library and psutil are imported, so that
an agent starts quickly and uses little memory.
"""

import contextlib
import json
import os
import platform
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO

import psutil

from dragoman.code_version import dragoman_version
from dragoman.launch.link_probe import ProbeServer, measure_link
from dragoman.launch.parent_death import die_with
from dragoman.launch.reachability import IdentityServer, reachable_addresses
from dragoman.launch.worker_forks import FORK_SERVER
from dragoman.launch.worker_processes import GRACE_S, POLL_S, Message, WorkerProcesses
from dragoman.listening_socket import bind_socket
from dragoman.worker_environment import SECRET

RESTART_S = 1.0
"""Pause before a lighthouse that exited is restarted."""


class Agent:
    """Handles each request with the method `handle_<command>`; a result of None is no reply."""

    def __init__(self, send: Callable[[Message], None], silence_s: float) -> None:
        self._send = send
        self._silence_s = silence_s
        self._folder = Path.home()
        self._workers = WorkerProcesses(send)
        self._servers: list[IdentityServer | ProbeServer] = []
        """Servers of the preflight."""
        self._secret = ""
        self._leaving = False

    def serve(self, requests: IO[bytes]) -> None:
        """Handle requests until the launcher is gone, then stop the workers and wait for them."""
        for request in self._read(requests):
            number = request.pop("id")
            result = getattr(self, f"handle_{request.pop('command')}")(**request)
            if result is not None:
                self._send({"result": result, "id": number})
        if not self._workers.elastic:
            self._workers.stop()
        self._workers.join()

    def _read(self, requests: IO[bytes]) -> Iterator[Message]:
        """Requests as they arrive. Ends with the input, or when the launcher's keepalives stop."""
        pending = b""
        received_at_s = time.monotonic()
        while not (self._leaving and not self._workers.running):
            if not select.select([requests], [], [], 1.0)[0]:
                if time.monotonic() - received_at_s > self._silence_s and not self._workers.elastic:
                    return
                continue
            read = os.read(requests.fileno(), 1 << 16)
            if not read:
                return
            received_at_s = time.monotonic()
            *lines, pending = (pending + read).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def leave(self) -> None:
        """Stop the workers and exit with them, even if the launcher is still connected."""
        self._workers.elastic, self._leaving = False, True
        self._workers.stop()

    def handle_keepalive(self) -> None:
        """The launcher is still there."""

    def handle_handshake(self, folder: str, make: bool, secret: str) -> Message:
        """Enter the folder that relative paths start from, or the home folder if it does not exist."""
        self._secret = secret
        wanted = Path(folder).expanduser()
        if make:
            wanted.mkdir(parents=True, exist_ok=True)
        self._folder = wanted if wanted.is_dir() else Path.home()
        os.chdir(self._folder)
        return {
            "dragoman": dragoman_version(),
            "python": platform.python_version(),
            "folder": str(self._folder),
            "at_s": time.time(),
        }

    def handle_stop_earlier(self, run: str) -> Message:
        """Ask an earlier launch of the same run, which may have lost its launcher, to save and exit."""
        earlier = earlier_agents(self._folder / run)
        for agent in earlier:
            with contextlib.suppress(psutil.NoSuchProcess):
                agent.terminate()
        deadline_s = time.monotonic() + GRACE_S + 2
        while any(_is_alive(agent) for agent in earlier) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        return {"stopped": len(earlier)}

    def handle_run_module(self, module: str, job: Message) -> Message:
        """Run a module of Dragoman with a job on its standard input. In its own process: it may import torch."""
        command = [sys.executable, "-m", module]
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)
        if done.returncode:
            return {"problem": done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"}
        return dict(json.loads(done.stdout))

    def handle_open_probe_server(self, address: str) -> Message:
        """Let other hosts measure their links to this one."""
        server = ProbeServer(address, self._secret)
        self._servers.append(server)
        return {"port": server.port}

    def handle_measure_link(self, address: str, port: int) -> Message:
        """Measure the link from this host to another host's probe server."""
        try:
            return asdict(measure_link(address, port, self._secret))
        except OSError as error:
            return {"problem": str(error)}

    def handle_open_identity_server(self) -> Message:
        """Let other hosts find out at which addresses they reach this one."""
        server = IdentityServer(self._secret)
        self._servers.append(server)
        return server.describe()

    def handle_reach(self, peers: dict[str, Message]) -> dict[str, list[str]]:
        return reachable_addresses(peers, self._secret)

    def handle_close_servers(self) -> None:
        """Close the ports of the preflight."""
        for server in self._servers:
            server.close()
        self._servers = []

    def handle_free_port(self, address: str) -> Message:
        """A free port on an address of this host, for the rendezvous of the workers."""
        with bind_socket(address, 0) as free:
            return {"port": free.getsockname()[1]}

    def handle_run_lighthouse(self, address: str, port: int) -> None:
        """Run a torchft lighthouse for an elastic world; restart it if it exits."""
        threading.Thread(target=self._run_lighthouse, args=(address, port), daemon=True).start()

    def _run_lighthouse(self, address: str, port: int) -> None:
        command = [sys.executable, "-m", "dragoman.launch.lighthouse", address, str(port)]
        environment = {**os.environ, "RUST_LOG": "error", SECRET: self._secret}
        while True:
            with subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (it takes no lock)
            ) as lighthouse:
                assert lighthouse.stdout is not None
                lighthouse.stdout.readline()  # Its port.
                for line in lighthouse.stdout:
                    self._send({"notice": f"{line.strip()}, at the lighthouse's port."})
            time.sleep(RESTART_S)

    def handle_start(
        self, arguments: Sequence[str], environments: Sequence[dict[str, str]], run: str, elastic: bool = False
    ) -> None:
        """Start a worker for each place in the world that belongs to this host."""
        for agent in earlier_agents(self._folder / run):  # The others have continued without its workers.
            with contextlib.suppress(psutil.NoSuchProcess):
                agent.kill()
                agent.wait(GRACE_S)
        known = [{**environment, SECRET: self._secret} for environment in environments]
        self._workers.start(arguments, known, self._folder / run, elastic=elastic)

    def handle_worker_states(self) -> Message:
        return dict(self._workers.states())

    def handle_stop(self) -> None:
        self._workers.stop()

    def handle_kill(self) -> None:
        self._workers.kill()


def earlier_agents(run: Path) -> list[psutil.Process]:
    """Other agents on this host whose workers train the same run, or are about to."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if FORK_SERVER in command:
            command = shlex.split(command[-1])
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, IndexError):
            if "train" in command and "--out" in command and _run_of(process, command) == run:
                agent = process.parent()
                if agent is not None and agent.pid != os.getpid() and "dragoman.launch.agent" in agent.cmdline():
                    found[agent.pid] = agent
    return list(found.values())


def _run_of(process: psutil.Process, command: Sequence[str]) -> Path:
    return Path(process.cwd(), command[command.index("--out") + 1])


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def main() -> None:
    silence_s = float(sys.argv[1])
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # Anything else that is printed here must not mix with the replies.
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock, contextlib.suppress(OSError):  # The launcher is gone: the end of the input shows it.
            replies.write(json.dumps(message).encode() + b"\n")

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    agent = Agent(send, silence_s)
    signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    agent.serve(sys.stdin.buffer)


if __name__ == "__main__":
    main()
