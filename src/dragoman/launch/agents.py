"""The launcher's connections to the agents on all hosts: one ssh connection each, used concurrently."""

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dragoman.authentication import new_secret
from dragoman.errors import DragomanError
from dragoman.launch.ssh import SILENCE_S, Machine, SshClient, explain

KEEPALIVE_S = 5.0
"""Interval of the messages that tell agents that the launcher is still there."""
Message = dict[str, Any]
HostMessage = tuple[str, Message]
"""A host, and what it reported without being asked."""


class HostLostError(Exception):
    """The connection to a host ended; the message is the reason."""


class RemoteAgent:
    """The agent of one host."""

    def __init__(self, machine: Machine, client: SshClient, messages: "queue.Queue[HostMessage]") -> None:
        self.machine = machine
        self._client = client
        self._messages = messages
        self._replies: queue.Queue[Message | None] = queue.Queue()
        self._output: deque[str] = deque(maxlen=20)
        """Last lines that ssh or the host's shell printed."""
        self._lock = threading.Lock()
        self._last_id = 0
        # In its own session, so that the terminal's Ctrl-C does not close the connection before the workers have saved.
        try:
            self._process = subprocess.Popen(
                client.module(machine, "dragoman.launch.agent", str(SILENCE_S)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise DragomanError(f"{error.filename} is not on this machine: install it, or check --python.") from None
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()
        threading.Thread(target=self._read_messages, daemon=True).start()

    def request(self, command: str, timeout_s: float | None = None, **arguments: Any) -> Message:
        """Send a request and wait for its result."""
        number = self.send(command, **arguments)
        while True:
            try:
                reply = self._replies.get(timeout=timeout_s)
            except queue.Empty:
                raise HostLostError("it does not answer") from None
            if reply is None:
                self._replies.put(None)
                raise HostLostError(self.why_lost())
            if reply["id"] == number:  # An earlier request timed out, and its reply came late.
                return dict(reply["result"])

    def send(self, command: str, **arguments: Any) -> int:
        """Send a request without waiting. Returns its number, which a reply would carry."""
        assert self._process.stdin is not None
        with self._lock:
            self._last_id += 1
            with contextlib.suppress(OSError, ValueError):  # Lost: the end of its replies shows it.
                self._process.stdin.write(json.dumps({"command": command, "id": self._last_id, **arguments}) + "\n")
                self._process.stdin.flush()
            return self._last_id

    def why_lost(self) -> str:
        self._error_reader.join(timeout=1)
        return explain(self.machine, self._client.python, "\n".join(self._output))

    def close(self, timeout_s: float) -> None:
        """Close the connection, which makes the agent stop its workers; wait for that."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = _parse(line)
            if message is None:
                self._output.append(line.rstrip())
            elif "result" in message:
                self._replies.put(message)
            else:
                self._messages.put((self.machine.name, message))
        self._replies.put(None)
        self._messages.put((self.machine.name, {"lost": True}))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._output.extend(line.rstrip() for line in self._process.stderr)


def _parse(line: str) -> Message | None:
    """An agent's message; None for other output of the host's shell, such as a login banner."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None


class Agents:
    """The agents of all hosts, as a context manager: leaving it ends them and their workers."""

    def __init__(self, machines: Sequence[Machine], client: SshClient) -> None:
        self.messages: queue.Queue[HostMessage] = queue.Queue()
        self.by_host = {machine.name: RemoteAgent(machine, client, self.messages) for machine in machines}
        self.secret = new_secret()
        """Known to the machines of this launch only."""
        self._closed = threading.Event()
        self.close_timeout_s = float(SILENCE_S)
        """How long agents may take to end their workers on leaving."""
        threading.Thread(target=self._send_keepalives, daemon=True).start()

    def __enter__(self) -> "Agents":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._closed.set()
        if kind is KeyboardInterrupt:  # Before workers were started: there is nothing to wait for.
            self.close_timeout_s = 0.0
        deadline = time.monotonic() + self.close_timeout_s
        with ThreadPoolExecutor(max_workers=len(self.by_host)) as pool:
            for agent in self.by_host.values():
                pool.submit(agent.close, max(0.0, deadline - time.monotonic()))

    def request_all(
        self, hosts: Sequence[str], command: str, timeout_s: float | None = None, **arguments: Any
    ) -> tuple[dict[str, Message], dict[str, HostLostError]]:
        """Send the same request to several hosts. Returns results, and the hosts that were lost instead."""
        return self.request_each(dict.fromkeys(hosts, (command, arguments)), timeout_s)

    def request_each(
        self, requests: Mapping[str, tuple[str, Message]], timeout_s: float | None = None
    ) -> tuple[dict[str, Message], dict[str, HostLostError]]:
        """Send each host its own request, all at once. Returns results, and the hosts that were lost instead."""

        def request(item: tuple[str, tuple[str, Message]]) -> Message | HostLostError:
            host, (command, arguments) = item
            try:
                return self.by_host[host].request(command, timeout_s, **arguments)
            except HostLostError as lost:
                return lost

        pool = ThreadPoolExecutor(max_workers=max(1, len(requests)))
        try:
            results = dict(zip(requests, pool.map(request, requests.items()), strict=True))
        finally:
            pool.shutdown(wait=False)  # After a Ctrl-C some may still wait: closing the connections ends them.
        replies = {host: result for host, result in results.items() if not isinstance(result, HostLostError)}
        return replies, {host: result for host, result in results.items() if isinstance(result, HostLostError)}

    def send_all(self, command: str) -> None:
        for agent in self.by_host.values():
            agent.send(command)

    def kill_workers(self) -> None:
        """Kill all workers now, without a checkpoint, and do not wait for agents when leaving."""
        self.send_all("kill")
        self.close_timeout_s = 2.0

    def _send_keepalives(self) -> None:
        while not self._closed.wait(KEEPALIVE_S):
            self.send_all("keepalive")
