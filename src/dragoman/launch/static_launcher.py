"""Workers in a static world: when one is lost, all are restarted from the newest checkpoint."""

import queue
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dragoman.errors import EXIT_USER_ERROR, EXIT_WORKERS_LOST, DragomanError
from dragoman.event_json import event_name, from_json
from dragoman.events import Event, MessagesRejected, RunEnded, WorkersLost
from dragoman.launch import NOTICE_S, RESTARTS
from dragoman.launch.agents import Agents
from dragoman.launch.host_output import HostOutput
from dragoman.launch.interrupts import Interrupts
from dragoman.launch.launch_request import LaunchRequest
from dragoman.launch.worker_placement import WorkerPlacement

HANG_S = 30.0
"""After this long without any event, the last event and the state of each worker are shown."""
STATES_S = 3.0
"""How long a host may take to report the states of its workers."""
USER_ERROR, CAUSE, CONSEQUENCE = range(3)
"""Kinds of failures: one that a restart does not fix; any other; and one that follows from the failure of another
worker. The first of the lowest kind is reported."""


@dataclass
class _Attempt:
    """State of the workers that were started together."""

    running: set[int]
    started_at_s: float = field(default_factory=time.monotonic)
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Kind and description of each failure, in order."""
    kill_at_s: float = float("inf")
    """When workers that still run after a failure are killed."""
    host_lost: bool = False
    reason: str = ""
    """Reason for the end of the run, from its last event."""
    last_events: dict[int, tuple[float, str]] = field(default_factory=dict)
    """Time and name of the last event of each worker."""
    silence_limit_s: float = HANG_S
    """How long all may be silent until that is shown."""

    @property
    def failure(self) -> str | None:
        """The failure to report, if there is any."""
        return min(self.failures, key=lambda failure: failure[0])[1] if self.failures else None

    @property
    def user_error(self) -> bool:
        return any(kind == USER_ERROR for kind, _ in self.failures)


class StaticLauncher:
    """Starts workers on all hosts and follows them to the end of the run."""

    def __init__(self, request: LaunchRequest, agents: Agents, placement: WorkerPlacement, view: HostOutput) -> None:
        self._request, self._agents, self._placement, self._view = request, agents, placement, view
        self._hosts = placement.hosts_by_rank()
        self._labels = placement.labels()
        self._stop_requested = False

    def run(self) -> str:
        """Train to the end. Returns the reason for it."""
        with Interrupts() as self._interrupts:
            return self._run()

    def _run(self) -> str:
        for restart in range(RESTARTS + 1):
            attempt = self._train_once()
            # Workers of a lost host may have asked the others to save and exit: that is not the end that was wanted.
            if attempt.failure is None or (attempt.reason in ("diverged", "interrupted") and not attempt.host_lost):
                return attempt.reason
            if self._stop_requested or attempt.user_error or attempt.host_lost:
                break
            if restart < RESTARTS:
                self._view.say(
                    f"{attempt.failure}: restarting all workers from the newest checkpoint ({restart + 1} of "
                    f"{RESTARTS})."
                )
        if attempt.user_error:
            raise DragomanError(f"{attempt.failure}: fix the error reported above.")
        raise DragomanError(
            f"{attempt.failure}. Checkpoints are in {self._request.out} on {self._request.first}; the same command "
            "resumes from there."
        )

    def _train_once(self) -> _Attempt:
        first = self._request.first
        address = self._placement.address(first)
        port = int(self._agents.by_host[first].request("free_port", address=address)["port"])
        attempt = _Attempt(set(self._hosts))
        for host, environments in self._placement.environments(port).items():
            self._agents.by_host[host].send(
                "start", arguments=self._request.arguments, environments=environments, run=str(self._request.out)
            )
        try:
            while attempt.running:
                self._handle_interrupts()
                if time.monotonic() > attempt.kill_at_s:
                    attempt.kill_at_s = float("inf")
                    self._agents.send_all("kill")
                try:
                    host, message = self._agents.messages.get(timeout=0.2)
                except queue.Empty:
                    self._report_silence(attempt)
                    continue
                self._handle(attempt, host, message)
        finally:
            self._view.end_attempt()
        return attempt

    def _handle(self, attempt: _Attempt, host: str, message: Mapping[str, Any]) -> None:
        rank = int(message.get("rank", 0))
        if "line" in message:
            if message["stream"] == "err" or rank != 0:  # Events show what the first worker prints.
                self._view.line(self._labels[rank], message["line"])
        elif "event" in message:
            event = from_json(message["event"])
            if event is not None:
                self._handle_event(attempt, rank, event)
        elif "exit" in message:
            attempt.running.discard(rank)
            self._handle_exit(attempt, rank, int(message["exit"]))
        elif "lost" in message:
            self._fail(attempt, CAUSE, f"{host} was lost ({self._agents.by_host[host].why_lost()})")
            attempt.running -= {rank for rank, environment in self._hosts.items() if environment == host}
            attempt.host_lost = True

    def _handle_exit(self, attempt: _Attempt, rank: int, code: int) -> None:
        # A worker that was still starting when it was asked to stop has nothing to save.
        if code == 0 or (self._stop_requested and code == -signal.SIGTERM):
            return
        follows = code == EXIT_WORKERS_LOST or (code == -signal.SIGKILL and bool(attempt.failures))
        kind = USER_ERROR if code == EXIT_USER_ERROR else CONSEQUENCE if follows else CAUSE
        reason = self._view.exit_reason(self._labels[rank], code)
        self._fail(attempt, kind, f"Worker {rank} on {self._hosts[rank]} failed ({reason})")

    def _handle_event(self, attempt: _Attempt, rank: int, event: Event) -> None:
        step = getattr(event, "step", None)
        name = event_name(type(event)) + ("" if step is None else f" of step {step}")
        attempt.last_events[rank] = (time.monotonic(), name)
        attempt.silence_limit_s = HANG_S
        if isinstance(event, WorkersLost) and event.workers:
            self._fail(attempt, CAUSE, f"{event.workers[0]} was lost: {event.reason}")
        if rank == 0 or isinstance(event, MessagesRejected):
            self._view.event(event)
        if rank == 0:
            attempt.reason = event.reason if isinstance(event, RunEnded) else ""

    def _report_silence(self, attempt: _Attempt) -> None:
        """Show the state of each worker if no event has arrived for long: a hang is never silent."""
        now_s = time.monotonic()
        latest_s = max((at_s for at_s, _ in attempt.last_events.values()), default=attempt.started_at_s)
        if now_s - latest_s < attempt.silence_limit_s:
            return
        attempt.silence_limit_s *= 2
        states, lost = self._agents.request_all(list(self._placement.workers), "worker_states", timeout_s=STATES_S)
        self._view.say(f"No events for {now_s - latest_s:.0f} s. Last event of each worker:")
        for rank in sorted(attempt.running):
            at_s, name = attempt.last_events.get(rank, (attempt.started_at_s, "its start"))
            host = self._hosts[rank]
            state = str(lost[host]) if host in lost else f"its process is {states[host].get(str(rank), 'gone')}"
            self._view.say(f"  worker {rank} on {host}: {name}, {now_s - at_s:.0f} s ago; {state}")

    def _fail(self, attempt: _Attempt, kind: int, failure: str) -> None:
        """Record a failure. After the first one, workers that do not exit by themselves are killed."""
        if not attempt.failures and not self._stop_requested:
            attempt.kill_at_s = time.monotonic() + NOTICE_S
        attempt.failures.append((kind, failure))

    def _handle_interrupts(self) -> None:
        if self._interrupts.first_time:
            self._stop_requested = True
            self._view.say("Stopping: workers finish their step and save. Press Ctrl-C again to exit at once.")
            self._agents.send_all("stop")
        elif self._interrupts.leave_at_once:
            self._agents.kill_workers()
            raise DragomanError(
                "Stopped at once, without a last checkpoint: the same command resumes from the newest one in "
                f"{self._request.out} on {self._request.first}."
            )
