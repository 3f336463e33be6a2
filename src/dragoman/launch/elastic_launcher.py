"""Workers in an elastic world: machines may be lost and may come back, and the run continues with those that are there.

The agents, not the launcher, restart workers and lighthouses, so that the run survives the loss of the machine that
started it. The launcher shows what happens, and connects to lost machines again as soon as they are back.
"""

import json
import queue
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from dragoman.errors import EXIT_USER_ERROR, DragomanError
from dragoman.event_json import from_json
from dragoman.events import Event, MessagesRejected, RunEnded, RunStarted, WorkersLost, WorldChanged
from dragoman.late_worker_events import WorkersLate
from dragoman.launch.agents import Agents, HostLostError, RemoteAgent
from dragoman.launch.host_output import HostOutput
from dragoman.launch.interrupts import Interrupts
from dragoman.launch.launch_request import LaunchRequest, working_folder
from dragoman.launch.ssh import SshClient
from dragoman.launch.worker_placement import WorkerPlacement
from dragoman.telemetry.worker_losses import LossTracker
from dragoman.worker_environment import LIGHTHOUSES

RECONNECT_S = 2.0
"""Pause between attempts to connect to a lost machine."""
HANDSHAKE_S = 15.0
CLOSE_S = 3.0
"""How long agents without workers may take to exit. A lost machine does not answer at all."""
LAST_EXITS_S = 30.0
"""How long the other workers may take to exit after the first one has finished."""


class ElasticLauncher:
    """Starts workers on machines that come and go, and follows them to the end of the run."""

    def __init__(
        self, request: LaunchRequest, agents: Agents, client: SshClient, placement: WorkerPlacement, view: HostOutput
    ) -> None:
        self._request, self._agents, self._client, self._view = request, agents, client, view
        self._labels = placement.labels()
        self._addresses = {host: placement.address(host) for host in placement.workers}
        self._ports = self._find_ports()
        self._environments = self._make_environments(placement)
        self._lost_hosts: set[str] = set()
        self._running = set(self._labels)
        self._shown_worker = 0
        """The worker whose events are shown: the first of the present world."""
        self._world: set[int] = set()
        """The workers of the present world, by the latest event about it."""
        self._world_at_s = 0.0
        self._losses = LossTracker()
        self._late_after = -1
        """The last step after which workers were reported late."""
        self._stop_requested = self._unsaved = False
        self._reason = ""
        self._last_failure = ""
        """Of a worker that was not restarted."""
        self._late_error = ""
        """An error after the end of the run, such as a last checkpoint that could not be written."""
        self._ended_at_s = float("inf")
        self._over = threading.Event()

    def _find_ports(self) -> dict[str, int]:
        """A free port for the lighthouse of each host."""
        replies, lost = self._agents.request_each(
            {host: ("free_port", {"address": address}) for host, address in self._addresses.items()}
        )
        if lost:
            raise DragomanError(f"{' and '.join(lost)} was lost before the start: run the same command again.")
        return {host: int(reply["port"]) for host, reply in replies.items()}

    def _make_environments(self, placement: WorkerPlacement) -> dict[str, list[dict[str, str]]]:
        """Environment variables of all workers, with the addresses of all lighthouses."""
        lighthouses = json.dumps([(self._addresses[host], port) for host, port in self._ports.items()])
        return {
            host: [{**environment, LIGHTHOUSES: lighthouses} for environment in environments]
            for host, environments in placement.environments(0).items()
        }

    def run(self) -> str:
        """Train to the end, or until Ctrl-C. Returns the reason for the end."""
        with Interrupts() as interrupts:
            try:
                for host in self._environments:
                    self._start(host)
                while self._is_running():
                    self._handle_interrupts(interrupts)
                    try:
                        self._handle(*self._agents.messages.get(timeout=0.2))
                    except queue.Empty:
                        continue
            finally:
                self._over.set()
                self._agents.send_all("stop")  # Agents of an elastic run do not exit when the launcher disconnects.
                self._view.end_attempt()
        self._agents.close_timeout_s = CLOSE_S
        if self._unsaved and not self._reason:
            raise DragomanError("Stopped without a last checkpoint: the same command resumes from the newest one.")
        if self._last_failure and not self._reason:
            raise DragomanError(
                f"No worker is left: {self._last_failure}. Checkpoints are in {self._request.out} on the hosts; the "
                "same command resumes from there."
            )
        if self._late_error:
            raise DragomanError(f"The run has ended ({self._reason}), but {self._late_error}")
        return self._reason or "interrupted"

    def _is_running(self) -> bool:
        """Whether to wait for more workers. After the end of the run, workers that were lost before do not count."""
        if not self._reason:
            return bool(self._running)
        return bool(self._running & self._world) and time.monotonic() < self._ended_at_s + LAST_EXITS_S

    def _start(self, host: str) -> None:
        agent = self._agents.by_host[host]
        agent.send("run_lighthouse", address=self._addresses[host], port=self._ports[host])
        agent.send(
            "start",
            arguments=self._request.arguments,
            environments=self._environments[host],
            run=str(self._request.out),
            elastic=True,
        )

    def _handle_interrupts(self, interrupts: Interrupts) -> None:
        if interrupts.leave_at_once:
            self._agents.kill_workers()
            raise DragomanError("Stopped at once, without a last checkpoint: the same command resumes the run.")
        if interrupts.first_time:
            self._stop_requested = True
            self._view.say("Stopping: workers finish their step and save. Press Ctrl-C again to exit at once.")
            self._agents.send_all("stop")

    def _handle(self, host: str, message: Mapping[str, Any]) -> None:
        rank = int(message.get("rank", 0))
        if "back" in message:
            self._lost_hosts.discard(host)
            self._view.say(f"{host} is back: starting its workers.")
            self._start(host)
        elif "lost" in message and host not in self._lost_hosts and not self._reason:
            self._lost_hosts.add(host)
            self._view.say(f"{host} was lost ({self._agents.by_host[host].why_lost()}): the others continue.")
            threading.Thread(target=self._reconnect, args=(host,), daemon=True).start()
        elif "line" in message and message["stream"] == "err":
            self._view.line(self._labels[rank], message["line"])
        elif "event" in message:
            event = from_json(message["event"])
            if event is not None:
                self._handle_event(rank, event)
        elif "exit" in message:
            self._handle_exit(rank, host, message)
        elif "notice" in message:
            self._view.warn(f"{host}: {message['notice']}")

    def _handle_exit(self, rank: int, host: str, message: Mapping[str, Any]) -> None:
        code = int(message["exit"])
        reason = self._view.exit_reason(self._labels[rank], code)
        if code == EXIT_USER_ERROR and not self._world:  # No step has been taken: there is nothing to save.
            self._agents.kill_workers()
            raise DragomanError(f"Worker {rank} on {host} cannot train: fix the error reported above.")
        if message["restart"]:
            self._view.say(f"Worker {rank} on {host} failed ({reason}) and is restarted.")
            return
        self._running.discard(rank)
        if code == EXIT_USER_ERROR and self._reason:
            self._late_error = f"worker {rank} on {host} failed ({reason})"
        if self._stop_requested:
            # A worker that was still starting when it was asked to stop has nothing to save.
            self._unsaved = self._unsaved or code not in (0, -signal.SIGTERM)
        elif code and not self._reason:
            times = f"failed {message['short_lives']} times in a row ({reason})"
            failure = "cannot train" if code == EXIT_USER_ERROR else times
            self._view.say(f"Worker {rank} on {host} {failure} and is not restarted: the others continue.")
            self._last_failure = f"worker {rank} on {host} failed ({reason})"

    def _handle_event(self, rank: int, event: Event) -> None:
        """Show the events of the first worker of the world; if it is lost, of the next one."""
        # A machine that was cut off may report late that it was alone meanwhile: such an event is outdated.
        if isinstance(event, RunStarted | WorldChanged | WorkersLost) and event.at_s > self._world_at_s:
            if (loss := self._losses.add(event)) is not None:  # All survivors report it: show it once.
                self._view.event(loss)
            if not isinstance(event, WorkersLost):
                workers = [int(worker.split()[1]) for worker in event.workers]
                self._shown_worker, self._world, self._world_at_s = workers[0], set(workers), event.at_s
        if isinstance(event, WorkersLate) and event.step > self._late_after:  # The shown worker may be the late one.
            self._late_after = event.step
            self._view.event(event)
        is_shown = rank == self._shown_worker and not isinstance(event, WorkersLost | WorkersLate)
        if is_shown or isinstance(event, MessagesRejected):
            self._view.event(event)
        if isinstance(event, RunEnded) and not self._reason:
            self._reason = event.reason
            self._ended_at_s = time.monotonic()

    def _reconnect(self, host: str) -> None:
        """Try to connect to a lost machine until it answers."""
        machine = self._agents.by_host[host].machine
        while not self._over.wait(RECONNECT_S):
            agent = RemoteAgent(machine, self._client, self._agents.messages)
            try:
                agent.request("handshake", HANDSHAKE_S, folder=working_folder(), make=False, secret=self._agents.secret)
            except HostLostError:
                agent.close(0.0)
                continue
            self._agents.by_host[host] = agent
            self._agents.messages.put((host, {"back": True}))
            return
