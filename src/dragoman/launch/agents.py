"""The agents on all hosts, as the launcher speaks to them: all at the same time, over one connection each."""

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

from dragoman.errors import DragomanError
from dragoman.launch.ssh import SILENCE_S, Client, Machine, explain

GREETING_S = 5.0
"""How often agents are told that the launcher is still there."""
Message = dict[str, Any]
Event = tuple[str, Message]
"""A host, and what it reported."""


class HostLostError(Exception):
    """The connection to a host ended; says why."""


class RemoteAgent:
    """One host's agent."""

    def __init__(self, machine: Machine, client: Client, events: "queue.Queue[Event]") -> None:
        self.machine = machine
        self._client = client
        self._events = events
        self._answers: queue.Queue[Message | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=20)
        self._lock = threading.Lock()
        self._serial = 0
        # A session of its own, so that the terminal's Ctrl-C does not end the connection before the workers have saved.
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
            raise DragomanError(
                f"There is no {error.filename} on this machine: install it, or check --python."
            ) from None
        self._complaints = threading.Thread(target=self._hear_complaints, daemon=True)
        self._complaints.start()
        threading.Thread(target=self._hear, daemon=True).start()

    def ask(self, question: str, timeout_s: float | None = None, **details: Any) -> Message:
        """Ask, and wait for the answer."""
        serial = self.tell(question, **details)
        while True:
            try:
                message = self._answers.get(timeout=timeout_s)
            except queue.Empty:
                raise HostLostError("it does not answer") from None
            if message is None:
                self._answers.put(None)
                raise HostLostError(self.why_lost())
            if message["serial"] == serial:  # Else it is late: nobody waits for it any more.
                return dict(message["answer"])

    def tell(self, question: str, **details: Any) -> int:
        """Ask for something without waiting. Gives the number that an answer would bear."""
        assert self._process.stdin is not None
        with self._lock:
            self._serial += 1
            with contextlib.suppress(OSError, ValueError):  # Lost: the end of its answers will tell.
                self._process.stdin.write(json.dumps({"ask": question, "serial": self._serial, **details}) + "\n")
                self._process.stdin.flush()
            return self._serial

    def why_lost(self) -> str:
        self._complaints.join(timeout=1)
        return explain(self.machine, self._client.python, "\n".join(self._said))

    def close(self, patience_s: float) -> None:
        """End the connection, upon which the agent ends its workers; wait for that a while."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = _parse(line)
            if message is None:
                self._said.append(line.rstrip())
            elif "answer" in message:
                self._answers.put(message)
            else:
                self._events.put((self.machine.name, message))
        self._answers.put(None)
        self._events.put((self.machine.name, {"lost": True}))

    def _hear_complaints(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(line.rstrip() for line in self._process.stderr)


def _parse(line: str) -> Message | None:
    """What an agent said; None for what only its host's shell can have said, such as a greeting."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None


class Agents:
    """The agents of all hosts. Leaving it ends them, and their workers with them."""

    def __init__(self, machines: Sequence[Machine], client: Client) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.agents = {machine.name: RemoteAgent(machine, client, self.events) for machine in machines}
        self._closed = threading.Event()
        self.patience_s = float(SILENCE_S)
        """How long agents may take to end their workers when the crew is left."""
        threading.Thread(target=self._greet, daemon=True).start()

    def __enter__(self) -> "Agents":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._closed.set()
        if kind is KeyboardInterrupt:  # Before anything was started: there is nothing to wait for.
            self.patience_s = 0.0
        deadline = time.monotonic() + self.patience_s
        with ThreadPoolExecutor(max_workers=len(self.agents)) as pool:
            for agent in self.agents.values():
                pool.submit(agent.close, max(0.0, deadline - time.monotonic()))

    def ask_all(
        self, questions: Mapping[str, tuple[str, Message]], timeout_s: float | None = None
    ) -> tuple[dict[str, Message], dict[str, HostLostError]]:
        """Ask each host its question, all at once. Gives the answers, and the hosts that were lost instead."""

        def ask(item: tuple[str, tuple[str, Message]]) -> Message | HostLostError:
            host, (question, details) = item
            try:
                return self.agents[host].ask(question, timeout_s, **details)
            except HostLostError as lost:
                return lost

        pool = ThreadPoolExecutor(max_workers=max(1, len(questions)))
        try:
            results = dict(zip(questions, pool.map(ask, questions.items()), strict=True))
        finally:
            pool.shutdown(wait=False)  # After a Ctrl-C some may still be asking: closing the connections ends them.
        answers = {host: result for host, result in results.items() if not isinstance(result, HostLostError)}
        return answers, {host: result for host, result in results.items() if isinstance(result, HostLostError)}

    def tell_all(self, question: str) -> None:
        for agent in self.agents.values():
            agent.tell(question)

    def leave_at_once(self) -> None:
        """End all workers now, saved or not, and wait for nobody."""
        self.tell_all("kill")
        self.patience_s = 2.0

    def _greet(self) -> None:
        while not self._closed.wait(GREETING_S):
            self.tell_all("alive")
