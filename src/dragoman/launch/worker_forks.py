"""The fork server of a host (see `fork_server`), as the agent uses it."""

import contextlib
import json
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

import psutil

from dragoman.launch.parent_death import adopt_orphans

FORK_SERVER = "dragoman.launch.fork_server"
FORK_S = 30.0
"""A fork server that has forked before and does not answer for this long is replaced."""
ATTEMPTS = 2
"""A fork server that was killed is started again once: if that one ends too, it cannot run here."""


class ForkServer:
    """Forks workers that run `dragoman` with the same arguments. Its process starts with the first of them."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", FORK_SERVER, shlex.join(arguments)]
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._closed = False

    def fork(self, variables: Mapping[str, str], output: Sequence[int]) -> psutil.Process | None:
        """Start a worker with these environment variables and files as standard output and error; None if it fails.

        The first one takes as long as the imports.
        """
        with self._lock:
            for _ in range(ATTEMPTS):
                if self._closed:
                    return None
                with contextlib.suppress(OSError, ValueError):  # Its process has ended, or does not answer.
                    return psutil.Process(self._request(json.dumps(variables).encode(), output))
                self._end()
            return None

    def close(self) -> None:
        """Fork no more workers; those that run are not affected. A request under way fails."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
            process.wait()

    def _request(self, request: bytes, output: Sequence[int]) -> int:
        requests = self._requests or self._start()
        socket.send_fds(requests, [request], output)
        worker = int(requests.recv(32))
        requests.settimeout(FORK_S)  # From now on: only the first request waits for the imports.
        return worker

    def _start(self) -> socket.socket:
        adopt_orphans()
        self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            # What goes wrong in it goes wrong in a worker started without it, too, and is reported there.
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return self._requests

    def _end(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
