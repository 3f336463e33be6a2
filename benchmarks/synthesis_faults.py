"""Faults during `dragoman synthesize` on three hosts: machines, workers and the command itself are lost and return.

Each fault hits a worker in the middle of a shard. All kinds occur, in random order: a host that loses its power, a
worker that is killed, all hosts at once, a host that is frozen or cut off for a moment, the command that is killed.
Once a host is frozen for so long that it is given up, and goes on with an old shard afterwards. At the end the command
is killed while it writes the corpus.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError
from dragoman.insight.synthesis_history import SynthesisHistory, is_synthesis, read_synthesis
from dragoman.synthesis_events import SynthesisStarted, TranslatorChanged

if TYPE_CHECKING:
    from tests.system.hosts import Host, Hosts

KINDS = ("host killed", "worker killed", "all hosts killed", "host frozen", "host cut off", "command killed")
GIVEN_UP = "host frozen until it was given up"
WRITING = "command killed while it wrote the corpus"
SHORT_FAULT_S = 2.0
READY_TIMEOUT_S = 120.0


class FaultyHosts:
    """Runs a synthesis, and disturbs its hosts and itself."""

    def __init__(self, hosts: "Hosts", command: list[str], out: Path, shards: int) -> None:
        self._hosts, self._command, self._out, self._shards = hosts, command, out, shards
        self._chance = random.Random(3)
        self.faults: Counter[str] = Counter()

    def run(self, faults: int) -> None:
        """Run the command to its end, with this number of faults if it takes long enough."""
        kinds = [GIVEN_UP, *(KINDS * (1 + faults // len(KINDS)))[: faults - 2]]
        self._chance.shuffle(kinds)
        self._start()
        try:
            for kind in kinds:
                if not self._wait_for_work():
                    break
                self._disturb(kind)
                self.faults[kind] += 1
            self._kill_while_writing()
            if self._process.wait(timeout=1800):
                raise SystemExit(f"synthesize exited with status {self._process.returncode}.")
        finally:
            self._process.kill()

    def history(self) -> SynthesisHistory:
        return read_synthesis(self._out)

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def _wait_for_work(self) -> bool:
        """Wait for a moment, and until a worker is in the middle of a shard. False if the translation has ended."""
        time.sleep(self._chance.uniform(0.5, 3))
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self._ready_hosts():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
        return self._stored() < self._shards - len(self._hosts)

    def _ready_hosts(self) -> list[str]:
        """Hosts that translate. A host that is ready has shards until none is left."""
        if not is_synthesis(self._out):
            return []
        with contextlib.suppress(DragomanError):  # It has no session yet.
            return [host for host, worker in self.history().workers(time.time()).items() if worker.is_ready]
        return []

    def _stored(self) -> int:
        return len(list(self._out.glob("shards/*.zst")))

    def _disturb(self, kind: str) -> None:
        name = self._chance.choice(self._ready_hosts() or ["a"])
        host = self._hosts[name]
        match kind:
            case "host killed":
                host.kill()
                host.restart()
            case "all hosts killed":
                for each in self._hosts:
                    each.kill()
                for each in self._hosts:
                    each.restart()
            case "worker killed":
                self._kill_worker(host)
            case "host frozen":
                with _frozen(host):
                    time.sleep(SHORT_FAULT_S)
            case "host cut off":
                host.disconnect()
                time.sleep(SHORT_FAULT_S)
                host.reconnect()
            case "command killed":
                self._kill_command()
            case _:
                with _frozen(host):
                    self._wait_until_given_up(name)

    def _kill_worker(self, host: "Host") -> None:
        for process in host.find_processes("dragoman.synthesis.shard_worker"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _kill_command(self) -> None:
        self._process.kill()
        self._process.wait()
        self._start()

    def _wait_until_given_up(self, name: str) -> None:
        while name in self._ready_hosts() and self._process.poll() is None:
            time.sleep(0.5)

    def _kill_while_writing(self) -> None:
        """Kill the command when all shards are stored, and before the corpus is described."""
        while self._stored() < self._shards and self._process.poll() is None:
            time.sleep(0.005)
        if self._process.poll() is None:
            self._kill_command()
            self.faults[WRITING] += 1


@contextlib.contextmanager
def _frozen(host: "Host") -> Iterator[None]:
    host.freeze()
    try:
        yield
    finally:
        host.thaw()


def count_losses(history: SynthesisHistory) -> dict[str, Any]:
    """What the log says: sessions, workers that were lost, and workers that came back in the same session."""
    lost, returned, missing = 0, 0, set[str]()
    for event in history.events:
        if isinstance(event, SynthesisStarted):
            missing = set()
        elif isinstance(event, TranslatorChanged) and event.state == "ready":
            returned += event.host in missing
            missing.discard(event.host)
        elif isinstance(event, TranslatorChanged):
            lost += 1
            missing.add(event.host)
    sessions = sum(isinstance(event, SynthesisStarted) for event in history.events)
    return {"sessions": sessions, "lost workers": lost, "returned in the same session": returned}
