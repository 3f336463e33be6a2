"""`dragoman launch --elastic`: machines come and go, and the run goes on with those that are there.

The agents, not the launcher, keep workers and lighthouses alive, so that the run survives the loss of the machine that
started it. The launcher shows what happens, and starts the agents of machines that were lost as soon as they are back.
"""

import queue
import signal
import threading
import time
from collections.abc import Mapping
from typing import Any

from dragoman.errors import EXIT_USER_ERROR, DragomanError
from dragoman.events import Event, RunEnded, RunStarted, WorkersLost, WorldChanged, from_json
from dragoman.launch.agents import Agents, HostLostError, RemoteAgent
from dragoman.launch.host_output import View
from dragoman.launch.interrupts import Interrupts
from dragoman.launch.launch_request import LIGHTHOUSES, HostPlacement, LaunchRequest, home_folder
from dragoman.launch.ssh import Client

SEEK_S = 2.0
"""How often a lost machine is looked for."""
ANSWER_S = 15.0
FAREWELL_S = 3.0
"""How long agents without workers may take to leave. A lost machine will not answer at all."""
LAST_WORDS_S = 30.0
"""How long the others may take to leave after the first worker has finished."""


class ElasticLaunch:
    """Workers on machines that come and go, from the start of a run to its end."""

    def __init__(self, order: LaunchRequest, crew: Agents, client: Client, muster: HostPlacement, view: View) -> None:
        self._order, self._crew, self._client, self._view = order, crew, client, view
        self._worlds = muster.worlds(0)
        self._hosts = {int(place["RANK"]): host for host, places in self._worlds.items() for place in places}
        ports, lost = crew.ask_all({host: ("port", {}) for host in muster.workers})
        if lost:
            raise DragomanError(f"{' and '.join(lost)} was lost before the start: the same command tries again.")
        self._ports = {host: int(answer["port"]) for host, answer in ports.items()}
        addresses = {host: muster.addresses[host][1] if muster.addresses else "127.0.0.1" for host in self._ports}
        lighthouses = ",".join(f"http://{addresses[host]}:{port}" for host, port in self._ports.items())
        for place in (place for places in self._worlds.values() for place in places):
            place[LIGHTHOUSES] = lighthouses
        self._labels = muster.labels()
        self._away: set[str] = set()
        self._running = set(self._hosts)
        self._speaker = 0
        """The worker whose events are shown: the first of the present world."""
        self._world: set[int] = set()
        """The workers of the present world, as the latest news of it has them."""
        self._world_at_s = 0.0
        self._told_to_stop = self._unsaved = False
        self._reason = ""
        self._ended_at_s = float("inf")
        self._over = threading.Event()

    def run(self) -> str:
        """Until the end, or until someone who may says to stop. Gives the reason."""
        with Interrupts() as interrupts:
            try:
                for host in self._worlds:
                    self._start(host)
                while self._goes_on():
                    if interrupts.leave_at_once:
                        self._crew.leave_at_once()
                        raise DragomanError("Left at once, without a last checkpoint: the same command goes on.")
                    if interrupts.first_time:
                        self._told_to_stop = True
                        self._view.say("Stopping: all workers end their step and save. Ctrl-C again leaves at once.")
                        self._crew.tell_all("stop")
                    try:
                        self._take(*self._crew.events.get(timeout=0.2))
                    except queue.Empty:
                        continue
            finally:
                self._over.set()
                self._crew.tell_all("stop")  # Agents of an elastic run do not end with the launcher's last word.
                self._view.end_attempt()
        self._crew.patience_s = FAREWELL_S
        if self._unsaved and not self._reason:
            raise DragomanError("Stopped without a last checkpoint: the same command goes on from the newest one.")
        return self._reason or "interrupted"

    def _goes_on(self) -> bool:
        """Until all have left. Of a run that has ended, nobody waits for workers that were lost before."""
        if not self._reason:
            return bool(self._running)
        return bool(self._running & self._world) and time.monotonic() < self._ended_at_s + LAST_WORDS_S

    def _start(self, host: str) -> None:
        agent = self._crew.agents[host]
        agent.tell("lighthouse", port=self._ports[host])
        agent.tell("start", words=self._order.words, worlds=self._worlds[host], run=str(self._order.out), elastic=True)

    def _take(self, host: str, message: Mapping[str, Any]) -> None:
        rank = int(message.get("rank", 0))
        if "back" in message:
            self._away.discard(host)
            self._view.say(f"{host} is back: its workers are started again.")
            self._start(host)
        elif "lost" in message and host not in self._away and not self._reason:
            self._away.add(host)
            self._view.say(f"{host} was lost ({self._crew.agents[host].why_lost()}): the others go on.")
            threading.Thread(target=self._seek, args=(host,), daemon=True).start()
        elif "line" in message and message["stream"] == "err":
            self._view.line(self._labels[rank], message["line"])
        elif "event" in message:
            event = from_json(message["event"])
            if event is not None:
                self._show(rank, event)
        elif "exit" in message:
            self._note_exit(rank, host, int(message["exit"]), again=bool(message["again"]))

    def _note_exit(self, rank: int, host: str, code: int, *, again: bool) -> None:
        if code == EXIT_USER_ERROR and not self._world:  # Nothing has begun, and nothing needs to be saved.
            self._crew.leave_at_once()
            raise DragomanError(f"Worker {rank} on {host} cannot train: mend the mistake that it told above.")
        if again:
            self._view.say(f"Worker {rank} on {host} died and is started again.")
            return
        self._running.discard(rank)
        if self._told_to_stop:
            # A worker that was still starting when it was told to stop has nothing to save.
            self._unsaved = self._unsaved or code not in (0, -signal.SIGTERM)
        elif code and not self._reason:
            how = "cannot train" if code == EXIT_USER_ERROR else "died again and again"
            self._view.say(f"Worker {rank} on {host} {how}, and is given up: the others go on.")
            if not self._running:
                raise DragomanError(
                    f"All workers were given up. What was saved is in {self._order.out} on the hosts; the same command "
                    "goes on from there."
                )

    def _show(self, rank: int, event: Event) -> None:
        """Show the events of the first worker of the world; when it is lost, of the one who follows."""
        # A machine that was cut off may tell late that it was alone meanwhile: that is no news.
        if isinstance(event, RunStarted | WorldChanged) and event.at_s > self._world_at_s:
            slots = [int(worker.split()[1]) for worker in event.workers]
            self._speaker, self._world, self._world_at_s = slots[0], set(slots), event.at_s
        lost_speaker = isinstance(event, WorkersLost) and any(
            worker.startswith(f"worker {self._speaker} ") for worker in event.workers
        )
        if rank == self._speaker or lost_speaker:
            self._view.event(event)
        if isinstance(event, RunEnded) and not self._reason:
            self._reason = event.reason
            self._ended_at_s = time.monotonic()

    def _seek(self, host: str) -> None:
        """Try to reach a lost machine until it answers."""
        machine = self._crew.agents[host].machine
        while not self._over.wait(SEEK_S):
            agent = RemoteAgent(machine, self._client, self._crew.events)
            try:
                agent.ask("hello", ANSWER_S, folder=home_folder(), make=False)
            except HostLostError:
                agent.close(0.0)
                continue
            self._crew.agents[host] = agent
            self._crew.events.put((host, {"back": True}))
            return
