"""Heartbeats: each worker sends its peers a small datagram several times a second, with its present activity.

When a process ends, its connections are closed, and its peers notice at once. A frozen machine or a broken network
closes nothing, and a collective would wait for minutes. Heartbeats distinguish a lost worker from a slow one within
seconds.
"""

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

HEARTBEAT_INTERVAL_S = 0.1
SILENCE_S = 1.5
"""A worker without a heartbeat for this long counts as lost. A busy machine misses a few heartbeats, not fifteen; a
worker declared lost by mistake rejoins before the next step."""
JOIN_S = 4.0
"""A peer that still reports another world this long after the present one was formed will not join it."""
FIND_LOST_S = 0.4
"""Time to find the peer that caused a failure."""
PORT_ERROR_S = 0.1
"""Time for a machine to report that no process listens on a port."""
MAX_MESSAGE_BYTES = 1024

Address = tuple[str, int]


@dataclass
class Peer:
    """The known state of another worker of the present world."""

    address: Address
    heard_at: float
    activity: str = "starting"
    """Last reported activity, such as `step 41, computing`."""
    joined: bool = False
    left: bool = False
    """True once it has been in the present world and reports another one, or none."""


class Heartbeat:
    """Sends this worker's heartbeats and receives the peers'. One thread each way, until closed."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self.port: int = self._socket.getsockname()[1]
        self.activity = "starting"
        self._name, self._world = "", ""
        self._joined_at = 0.0
        self._peers: dict[str, Peer] = {}
        self._closed = threading.Event()
        for run in (self._send, self._receive):
            threading.Thread(target=run, name="heartbeat", daemon=True).start()

    def join(self, world: str, name: str, addresses: Mapping[str, Address]) -> None:
        """Start to send heartbeats as `name` to the peers of a world. All of them count as heard now."""
        self._joined_at = time.monotonic()
        self._name, self._world = name, world
        self._peers = {peer: Peer(address, self._joined_at) for peer, address in addresses.items()}

    def leave(self) -> None:
        """Report with every further heartbeat that this worker is in no world."""
        self._world = ""

    def missing(self) -> list[str]:
        """Peers that are silent or have left."""
        now = time.monotonic()
        late = now - self._joined_at > JOIN_S
        return [
            name
            for name, peer in self._peers.items()
            if peer.left or peer.heard_at < now - SILENCE_S or (late and not peer.joined)
        ]

    def find_lost(self) -> list[str]:
        """After a failure, the peers that caused it: their process has ended, or they are silent.

        A peer that has left the world has lost a worker itself and is not the cause. It may have noticed the loss
        earlier, so half of `SILENCE_S` is enough here. Connections may fail a moment before the process has ended, and
        a busy machine answers late; but recovery must not wait long for a name.
        """
        deadline = time.monotonic() + FIND_LOST_S
        while True:
            ended, now = self._find_ended(), time.monotonic()
            lost = [name for name, peer in self._peers.items() if name in ended or peer.heard_at < now - SILENCE_S / 2]
            if lost or now > deadline:
                return lost

    def last_activity(self, name: str) -> str:
        """The last reported activity of a peer, and its age."""
        peer = self._peers[name]
        return f"{peer.activity}, heard {time.monotonic() - peer.heard_at:.1f} s ago"

    def close(self) -> None:
        self._closed.set()
        self._socket.close()

    def _find_ended(self) -> set[str]:
        """Peers whose machine answers that no process listens on their port."""
        with contextlib.ExitStack() as stack:
            probes = {}
            for name, peer in self._peers.items():
                probes[name] = probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                with contextlib.suppress(OSError):
                    probe.connect(peer.address)
                    probe.send(b"")
            time.sleep(PORT_ERROR_S)
            errors = {name: probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for name, probe in probes.items()}
        return {name for name, error in errors.items() if error == errno.ECONNREFUSED}

    def _send(self) -> None:
        while not self._closed.wait(HEARTBEAT_INTERVAL_S):
            message = json.dumps([self._name, self._world, self.activity[:200]], ensure_ascii=False).encode()
            for peer in list(self._peers.values()):
                try:
                    self._socket.sendto(message, peer.address)
                except OSError:  # The network is down or the socket is closed: peers notice that no heartbeat arrives.
                    continue

    def _receive(self) -> None:
        while not self._closed.is_set():
            try:
                message = self._socket.recv(MAX_MESSAGE_BYTES)
            except OSError:
                return
            name, world, activity = parse_heartbeat(message) or ("", "", "")
            if peer := self._peers.get(name):
                peer.heard_at, peer.activity = time.monotonic(), activity
                peer.left = peer.joined and world != self._world
                peer.joined = peer.joined or world == self._world


def parse_heartbeat(message: bytes) -> tuple[str, str, str] | None:
    """Name, world and activity of a received heartbeat; None if it is malformed."""
    try:
        parts = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
        return None
    return parts[0], parts[1], parts[2]
