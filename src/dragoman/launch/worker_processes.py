"""The worker processes of one host: started, watched, restarted in elastic runs, and stopped."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from dragoman.errors import EXIT_DIVERGED, EXIT_USER_ERROR
from dragoman.launch.parent_death import die_with
from dragoman.launch.worker_forks import ForkServer
from dragoman.log_reader import LogFollower
from dragoman.text_lines import split_lines
from dragoman.worker_environment import RESTARTED

GRACE_S = 30.0
"""How long workers may take to save after they were asked to stop."""
POLL_S = 0.1
SHORT_LIFE_S = 20.0
MAX_SHORT_LIVES = 5
"""A worker that dies this often in a row, each time within `SHORT_LIFE_S`, is not restarted again."""
Message = dict[str, Any]


class WorkerProcesses:
    """Starts workers, and sends the launcher their output, their events and their exit codes."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._processes: dict[int, psutil.Process] = {}
        self._watchers: list[threading.Thread] = []
        self._stopping = False
        self._arguments: Sequence[str] = ()
        self._environment: dict[str, str] = {}
        """Environment variables of all workers."""
        self._fork_server: ForkServer | None = None
        """Where workers are restarted: each starts in milliseconds."""
        self.elastic = False
        """Whether dead workers are restarted here, and continue without the launcher."""

    @property
    def running(self) -> bool:
        return any(watcher.is_alive() for watcher in self._watchers)

    def start(
        self, arguments: Sequence[str], environments: Sequence[dict[str, str]], run: Path, *, elastic: bool
    ) -> None:
        """Start `dragoman` with these arguments, once for each worker's environment variables."""
        self.elastic, self._stopping = elastic, False
        self._processes, self._watchers = {}, []
        threads = max(1, len(os.sched_getaffinity(0)) // len(environments))
        self._arguments = arguments
        self._environment = {"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONUNBUFFERED": "1"}
        self._fork_server = ForkServer(arguments, self._environment) if elastic else None
        for variables in environments:
            log = run / f"events-{variables['RANK']}.jsonl"
            watcher = threading.Thread(target=self._watch, args=(variables, log))
            watcher.start()
            self._watchers.append(watcher)

    def states(self) -> dict[str, str]:
        """State of each process, by rank, as the kernel reports it: running, sleeping, stopped."""
        states: dict[str, str] = {}
        for rank, process in self._processes.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                states[str(rank)] = process.status()
        return states

    def stop(self) -> None:
        """Ask the workers to finish their step, save and exit; kill those that have not after a while."""
        self._signal_all(signal.SIGTERM)
        timer = threading.Timer(GRACE_S, self.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        self._stopping = True
        if self._fork_server is not None:
            self._fork_server.close()
        for process in self._processes.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def join(self) -> None:
        for watcher in self._watchers:
            watcher.join()

    def _watch(self, variables: dict[str, str], log: Path) -> None:
        """Run a worker until it exits for good. Its exit code is the last message about it."""
        rank, short_lives = int(variables["RANK"]), 0
        read_events = follow_lines(log, latest_only=not (self.elastic or rank == 0))
        while True:
            out, err = os.pipe(), os.pipe()
            process = self._start_process(variables, (out[1], err[1]))
            started_at_s = time.monotonic()
            self._processes[rank] = process
            if self._stopping:  # Since before this process was known.
                process.terminate()
            code = self._follow(process, {"out": out[0], "err": err[0]}, rank, read_events)
            short_lives = short_lives + 1 if time.monotonic() - started_at_s < SHORT_LIFE_S else 0
            failed = code not in (0, EXIT_USER_ERROR, EXIT_DIVERGED)
            restart = self.elastic and failed and not self._stopping and short_lives < MAX_SHORT_LIVES
            self._send({"exit": code, "rank": rank, "restart": restart, "short_lives": short_lives})
            if not restart:
                return
            variables = {**variables, RESTARTED: "1"}

    def _start_process(self, variables: dict[str, str], output: tuple[int, int]) -> psutil.Process:
        """Fork a worker where a fork server can; otherwise start Python, which takes seconds. Closes the output."""
        try:
            if self._fork_server is not None and (forked := self._fork_server.fork(variables, output)) is not None:
                return forked
            return psutil.Popen(
                [sys.executable, "-m", "dragoman", *self._arguments],
                env={**self._environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output[0],
                stderr=output[1],
                preexec_fn=partial(die_with, os.getpid()),
            )
        finally:
            for file in output:
                os.close(file)

    def _follow(
        self, process: psutil.Process, output: dict[str, int], rank: int, read_events: Callable[[], list[str]]
    ) -> int:
        """Relay output and events of a process until it exits. Returns its exit code."""
        readers = [
            threading.Thread(target=self._relay_lines, args=(source, rank, name)) for name, source in output.items()
        ]
        for reader in readers:
            reader.start()
        while (code := _exit_code(process)) is None:
            self._relay_events(rank, read_events())
        for reader in readers:
            reader.join()
        self._relay_events(rank, read_events())
        return code

    def _relay_lines(self, source: int, rank: int, name: str) -> None:
        with open(source, "rb") as stream:
            for line in stream:
                self._send({"line": line.decode(errors="replace").rstrip(), "rank": rank, "stream": name})

    def _relay_events(self, rank: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._send({"event": line, "rank": rank})


def _exit_code(process: psutil.Process) -> int | None:
    """Exit code of a process, as that of `subprocess`; None if it still runs after a moment."""
    try:
        return int(process.wait(POLL_S))
    except psutil.TimeoutExpired:
        return None


def follow_lines(log: Path, *, latest_only: bool) -> Callable[[], list[str]]:
    """A function that returns the complete lines added to a file since its last call, or only the latest of them."""
    follower = LogFollower(log)
    for _ in follower.read_blocks():
        pass

    def read() -> list[str]:
        last_line, added, was_thinned = follower.last_line, b"", False
        for text, is_thinned in follower.read_blocks():
            added = text if is_thinned else added + text
            was_thinned |= is_thinned
        if was_thinned:  # Its latest lines are as before.
            added = added.partition(last_line)[2]
        lines = split_lines(added.decode(errors="replace"))
        return lines[-1:] if latest_only else lines

    return read
