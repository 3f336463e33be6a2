"""`dragoman launch`: a run over several machines, from one of them or from another."""

import queue
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from dragoman.doctor.measurements import find_ways
from dragoman.errors import EXIT_USER_ERROR, DragomanError
from dragoman.events import Event, RunEnded, WorkersLost, event_name, from_json
from dragoman.launch import RESTARTS
from dragoman.launch.agent import dragoman_version
from dragoman.launch.agents import Agents
from dragoman.launch.elastic_launcher import ElasticLaunch
from dragoman.launch.host_output import View
from dragoman.launch.interrupts import Interrupts
from dragoman.launch.launch_request import HostPlacement, LaunchRequest, home_folder
from dragoman.launch.preflight import (
    HostsError,
    Problem,
    Report,
    clock_offsets,
    compare,
    compare_clocks,
    compare_versions,
    newest,
    settings_digest,
)
from dragoman.launch.ssh import Client
from dragoman.step_model import METHODS

HANG_S = 30.0
"""After so long without any event it is told who is missing."""
REPLY_S = 3.0


def launch(order: LaunchRequest, client: Client, console: Console) -> str:
    """Train on several machines, and give the reason of the end."""
    with Agents(order.machines, client) as crew:
        muster = call_together(order, client, crew, console)
        if muster.newest not in (None, order.first):
            console.print(
                f"The newest checkpoint is on {muster.newest}: it is copied to {order.first}.", highlight=False
            )
            _move_run(order, client, str(muster.newest), crew)
        labels = muster.labels()
        view = View(console, order.settings, list(labels.values()))
        if order.elastic:
            return ElasticLaunch(order, crew, client, muster, view).run()
        return _StaticLaunch(order, crew, muster, view).run()


def call_together(order: LaunchRequest, client: Client, crew: Agents, console: Console) -> HostPlacement:
    """Reach all hosts, copy to them what is to be copied, and check that they are ready. Nothing is started before."""
    problems: list[Problem] = []
    names = [machine.name for machine in order.machines]
    asked_at_s = time.time()
    hellos, lost = crew.ask_all({host: ("hello", {"folder": home_folder(), "make": order.push}) for host in names})
    answered_at_s = time.time()
    problems += [Problem(host, f"cannot be used: {reason}.") for host, reason in lost.items()]
    foreign = compare_versions(dragoman_version(), {host: str(hello["dragoman"]) for host, hello in hellos.items()})
    problems += foreign
    ready = [host for host in hellos if host not in {problem.host for problem in foreign}]
    if not problems:
        _clear(order, crew, ready, console)
    if order.push and not problems:
        _push(order, client, {host: str(hellos[host]["folder"]) for host in ready}, console)
    reports, more = _probe(order, crew, ready)
    problems += more
    workers = {
        machine.name: machine.workers or reports[machine.name].gpus or 1
        for machine in order.machines
        if machine.name in reports
    }
    if reports:
        problems += compare(reports, workers, settings_digest(order.settings))
    addresses, more = find_ways(crew, ready) if len(names) > 1 and ready == names else ({}, [])
    problems += more
    if problems:
        raise HostsError(sorted(problems, key=lambda problem: names.index(problem.host)))
    clocks_s = {host: hello["at_s"] for host, hello in hellos.items()}
    for problem in compare_clocks(clock_offsets(clocks_s, asked_at_s, answered_at_s)):
        console.print(f"[yellow]{problem.host} {problem.sentence}[/yellow]", highlight=False)
    if len(names) > 1 and order.settings.exchange.method in METHODS:
        from dragoman.doctor.consultation import forewarn  # Brings torch along, which a launcher can do without.

        forewarn(order, crew, addresses, reports[order.first].parameters, console)
    return HostPlacement(workers, addresses, newest(reports))


def _clear(order: LaunchRequest, crew: Agents, hosts: Sequence[str], console: Console) -> None:
    """Let an earlier launch of the same run save and leave, before the newest checkpoint is looked for."""
    answers, _ = crew.ask_all({host: ("clear", {"run": str(order.out)}) for host in hosts})
    cleared = [host for host, answer in answers.items() if answer["cleared"]]
    if cleared:
        console.print(
            f"{order.out} was still being trained on {', '.join(cleared)}: it was stopped.",
            highlight=False,
            soft_wrap=True,
        )


def _probe(order: LaunchRequest, crew: Agents, hosts: Sequence[str]) -> tuple[dict[str, Report], list[Problem]]:
    job = {
        "recipe": order.recipe,
        "overrides": list(order.overrides),
        "data": str(order.data),
        "out": str(order.out),
        "elastic": order.elastic,
    }
    answers, lost = crew.ask_all({host: ("probe", {"job": job}) for host in hosts})
    problems = [Problem(host, f"was lost: {reason}.") for host, reason in lost.items()]
    problems += [
        Problem(host, f"cannot train: {answer['problem']}.") for host, answer in answers.items() if "problem" in answer
    ]
    return {host: Report(**answer) for host, answer in answers.items() if "problem" not in answer}, problems


def _push(order: LaunchRequest, client: Client, folders: Mapping[str, str], console: Console) -> None:
    """Copy the data set, and the recipe where it is a file."""
    sources = [order.data, *([Path(order.recipe)] if Path(order.recipe).is_file() else [])]
    missing = [str(path) for path in sources if not path.exists()]
    if missing:
        raise DragomanError(f"{' and '.join(missing)} cannot be copied, there is none here: check the path.")
    for machine in order.machines:
        for source in () if machine.is_here else sources:
            console.print(f"Copying {source} to {machine.name}", highlight=False, soft_wrap=True)
            target = str(Path(folders[machine.name]) / source)
            client.push(machine, source, target, show_progress=console.is_terminal)


def _move_run(order: LaunchRequest, client: Client, source: str, crew: Agents) -> None:
    """Let a run flow from the host that has it, through this machine, to the first."""
    sender, receiver = crew.agents[source].machine, crew.agents[order.first].machine
    folders, _ = crew.ask_all(
        {host: ("hello", {"folder": home_folder(), "make": False}) for host in (source, order.first)}
    )
    run = {host: str(Path(answer["folder"]) / order.out) for host, answer in folders.items()}
    sending = subprocess.Popen(
        client.module(sender, "dragoman.launch.run_transfer", "send", run[source]), stdout=subprocess.PIPE
    )
    received = subprocess.run(
        client.module(receiver, "dragoman.launch.run_transfer", "receive", run[order.first]),
        stdin=sending.stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if sending.wait() or received.returncode:
        raise DragomanError(
            f"The run could not be copied from {source} to {order.first}: name {source} first in --hosts, or copy "
            f"{order.out} yourself."
        )


@dataclass
class _Attempt:
    """What is known of the workers that were started together."""

    running: set[int]
    started_at_s: float = field(default_factory=time.monotonic)
    failure: str | None = None
    """Who failed first, and how."""
    mistaken: bool = False
    """Whether a worker has told a mistake of the user, which no restart mends."""
    host_lost: bool = False
    reason: str = ""
    """Why the run ended, in the words of its events."""
    heard: dict[int, tuple[float, str]] = field(default_factory=dict)
    """When each worker was last heard of, and with what."""
    next_doubt_s: float = HANG_S
    """How long all may be silent before it is told."""


class _StaticLaunch:
    """Workers on all hosts, from the start to the end, and again from the newest checkpoint when some are lost."""

    def __init__(self, order: LaunchRequest, crew: Agents, muster: HostPlacement, view: View) -> None:
        self._order = order
        self._crew = crew
        self._muster = muster
        self._hosts = {int(place["RANK"]): host for host, places in muster.worlds(0).items() for place in places}
        self._labels = muster.labels()
        self._view = view
        self._told_to_stop = False

    def run(self) -> str:
        with Interrupts() as self._interrupts:
            return self._run()

    def _run(self) -> str:
        for restart in range(RESTARTS + 1):
            attempt = self._train_once()
            if attempt.failure is None or attempt.reason in ("diverged", "interrupted"):
                return attempt.reason
            if self._told_to_stop or attempt.mistaken or attempt.host_lost:
                break
            if restart < RESTARTS:
                self._view.say(
                    f"{attempt.failure}: all start again from the newest checkpoint ({restart + 1} of {RESTARTS})."
                )
        if attempt.mistaken:
            raise DragomanError(f"{attempt.failure}: mend the mistake that it told above.")
        raise DragomanError(
            f"{attempt.failure}. What was saved is in {self._order.out} on {self._order.first}; the same command goes "
            "on from there."
        )

    def _train_once(self) -> _Attempt:
        port = int(self._crew.agents[self._order.first].ask("port")["port"])
        worlds = self._muster.worlds(port)
        attempt = _Attempt({int(place["RANK"]) for places in worlds.values() for place in places})
        for host, places in worlds.items():
            self._crew.agents[host].tell("start", words=self._order.words, worlds=places, run=str(self._order.out))
        try:
            while attempt.running:
                self._heed_interrupts()
                try:
                    host, message = self._crew.events.get(timeout=0.2)
                except queue.Empty:
                    self._doubt(attempt)
                    continue
                self._take(attempt, host, message)
        finally:
            self._view.end_attempt()
        return attempt

    def _take(self, attempt: _Attempt, host: str, message: Mapping[str, Any]) -> None:
        rank = int(message.get("rank", 0))
        if "line" in message:
            if message["stream"] == "err" or rank != 0:  # What the first worker prints is shown from its events.
                self._view.line(self._labels[rank], message["line"])
        elif "event" in message:
            event = from_json(message["event"])
            if event is not None:
                self._note(attempt, rank, event)
        elif "exit" in message:
            attempt.running.discard(rank)
            # A worker that was still starting when it was told to stop has nothing to save.
            if message["exit"] and not (self._told_to_stop and message["exit"] == -signal.SIGTERM):
                self._fail(attempt, f"Worker {rank} on {host} failed ({_how(message['exit'])})")
                attempt.mistaken = attempt.mistaken or message["exit"] == EXIT_USER_ERROR
        elif "lost" in message:
            self._fail(attempt, f"{host} was lost ({self._crew.agents[host].why_lost()})")
            attempt.running -= {rank for rank, place in self._hosts.items() if place == host}
            attempt.host_lost = True

    def _note(self, attempt: _Attempt, rank: int, event: Event) -> None:
        """Remember a worker's event, and show the first worker's."""
        step = getattr(event, "step", None)
        attempt.heard[rank] = (time.monotonic(), event_name(type(event)) + ("" if step is None else f" of step {step}"))
        attempt.next_doubt_s = HANG_S
        if isinstance(event, WorkersLost) and event.workers:  # The first to leave would be a victim, not the culprit.
            self._fail(attempt, f"{event.workers[0]} was lost: {event.reason}")
        if rank == 0:
            self._view.event(event)
            attempt.reason = event.reason if isinstance(event, RunEnded) else ""

    def _doubt(self, attempt: _Attempt) -> None:
        """Say who is missing when nothing has happened for long: a hang is never silent."""
        now_s = time.monotonic()
        latest_s = max((at_s for at_s, _ in attempt.heard.values()), default=attempt.started_at_s)
        if now_s - latest_s < attempt.next_doubt_s:
            return
        attempt.next_doubt_s *= 2
        states, lost = self._crew.ask_all({host: ("states", {}) for host in self._muster.workers}, timeout_s=REPLY_S)
        self._view.say(f"Nothing has happened for {now_s - latest_s:.0f} s. Last heard of:")
        for rank in sorted(attempt.running):
            at_s, what = attempt.heard.get(rank, (attempt.started_at_s, "its start"))
            host = self._hosts[rank]
            state = f"but {lost[host]}" if host in lost else f"its process is {states[host].get(str(rank), 'gone')}"
            self._view.say(f"  worker {rank} on {host}: {what}, {now_s - at_s:.0f} s ago; {state}")

    def _fail(self, attempt: _Attempt, how: str) -> None:
        """Note the first failure, and end the others: what they wait for will not come."""
        if attempt.failure is None:
            attempt.failure = how
            if not self._told_to_stop:
                self._crew.tell_all("kill")

    def _heed_interrupts(self) -> None:
        if self._interrupts.first_time:
            self._told_to_stop = True
            self._view.say("Stopping: all workers end their step and save. Ctrl-C again leaves at once.")
            self._crew.tell_all("stop")
        elif self._interrupts.leave_at_once:
            self._crew.leave_at_once()
            raise DragomanError(
                f"Left at once, without a last checkpoint: the same command goes on from the newest one in "
                f"{self._order.out} on {self._order.first}."
            )


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
