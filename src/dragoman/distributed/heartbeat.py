"""Heartbeats: each worker sends its peers a small datagram several times a second, with its present activity.

When a process ends, its connections are closed, and its peers notice at once. A frozen machine or a broken network
closes nothing, and a collective would wait for minutes. Heartbeats distinguish a lost worker from a slow one.

Each heartbeat is signed with the secret of the launch and numbered. Those of strangers, and old ones sent again, are
dropped.
"""

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.authentication import SIGNATURE_BYTES, Rejections, is_signed, sign

HEARTBEAT_INTERVAL_S = 0.1
JOIN_S = 4.0
"""A peer that has not joined the present world this long after it was formed will not join it, unless it may be silent
for longer."""
FIND_LOST_S = 0.4
"""Time to find the peer that caused a failure."""
PORT_ERROR_S = 0.1
"""Time for a machine to report that no process listens on a port."""
MAX_MESSAGE_BYTES = 1024
RECEIVE_S = 0.1
"""A closed socket does not wake the thread that receives: it looks this often whether it is still needed."""

Address = tuple[str, int]


@dataclass
class Peer:
    """The known state of another worker of the present world."""

    address: Address
    heard_at: float
    heard: bool = False
    """False until its first heartbeat. A new peer may still be connecting to the store of the world."""
    activity: str = "starting"
    """Last reported activity, such as `step 41, computing`."""
    joined: bool = False
    left: bool = False
    """True once it has been in the present world and reports another one, or none."""
    arrivals: int = 0
    """Synchronisations of the present world that it has arrived at."""
    gave_up: bool = False
    """True once it no longer waits for workers that are late at the last one."""


class HeartbeatMessage(NamedTuple):
    """Content of a heartbeat."""

    number: int
    """Larger than in all earlier heartbeats of the same worker."""
    name: str
    world: str
    activity: str
    arrivals: int = 0
    """Synchronisations that the worker has arrived at, in its present or last world."""
    gave_up: bool = False
    """True once it no longer waits for the workers that are late at the last one."""


class Heartbeat:
    """Sends this worker's heartbeats and receives the peers'. One thread each way, from `listen` until `close`."""

    def __init__(self, silence_s: float) -> None:
        """A peer without a heartbeat for `silence_s` counts as lost."""
        self._silence_s = silence_s
        self._join_s = max(JOIN_S, silence_s)
        self.port = 0
        self.activity = "starting"
        self.rejections = Rejections()
        self._name, self._world = "", ""
        self._joined_at = 0.0
        self._arrivals, self._gave_up, self._left_behind = 0, False, False
        self._peers: dict[str, Peer] = {}
        self._last_numbers: dict[str, int] = {}
        """Number of the last heartbeat of each worker, also of earlier worlds."""
        self._closed = threading.Event()
        self._due = threading.Event()
        """Set to send a heartbeat at once."""
        self._socket: socket.socket | None = None

    def listen(self, address: str, secret: str) -> None:
        """Open a port on an address of this machine, for the peers that know the secret."""
        self._secret = secret
        self._socket = opened = _datagram_socket(address)
        opened.bind((address, 0))
        opened.settimeout(RECEIVE_S)
        self.port = opened.getsockname()[1]
        for run in (self._send, self._receive):
            threading.Thread(target=run, args=(opened,), name="heartbeat", daemon=True).start()

    def join(self, world: str, name: str, addresses: Mapping[str, Address]) -> None:
        """Start to send heartbeats as `name` to the peers of a world. All of them count as heard now."""
        self._joined_at = time.monotonic()
        self._name, self._world = name, world
        self._arrivals, self._gave_up, self._left_behind = 0, False, False
        self._peers = {peer: Peer(address, self._joined_at) for peer, address in addresses.items()}

    def leave(self) -> None:
        """Report with every further heartbeat that this worker is in no world."""
        self._world = ""

    def arrive(self) -> None:
        """Report to all peers that this worker has arrived at the next synchronisation."""
        self._arrivals += 1
        self._due.set()

    def give_up(self) -> None:
        """Report to all peers that this worker no longer waits for the late ones."""
        self._gave_up = True
        self._due.set()

    def awaited(self) -> list[str]:
        """Peers that have not arrived yet where this worker is. Others may already be at the next synchronisation."""
        return [name for name, peer in self._peers.items() if peer.arrivals < self._arrivals]

    def late(self) -> list[str]:
        """Workers that were not in time at a synchronisation that others have arrived at."""
        newest = max([self._arrivals, *(peer.arrivals for peer in self._peers.values())])
        late = [name for name, peer in self._peers.items() if peer.arrivals < newest]
        return [*late, self._name] if self._left_behind else late

    @property
    def gave_up(self) -> bool:
        """True once a worker of the present world no longer waits for late ones: all must leave this world."""
        return self._gave_up or any(peer.gave_up for peer in self._peers.values())

    @property
    def gave_up_here(self) -> bool:
        """True if the synchronisation where this worker has arrived does not take place: others do not wait for it."""
        return self._gave_up or any(peer.gave_up and peer.arrivals <= self._arrivals for peer in self._peers.values())

    @property
    def left_behind(self) -> bool:
        """True while this worker is in a world that others have left because they no longer waited for it."""
        return self._left_behind and self._world != ""

    def missing(self) -> list[str]:
        """Peers that are silent, have left, or are about to leave."""
        now = time.monotonic()
        late = now - self._joined_at > self._join_s
        return [
            name
            for name, peer in self._peers.items()
            if peer.left or peer.gave_up or self._is_silent(peer, now, self._silence_s) or (late and not peer.joined)
        ]

    def find_lost(self) -> list[str]:
        """After a failure, the peers that caused it: their process has ended, or they are silent.

        A peer that has left the world has lost a worker itself and is not the cause. It may have noticed the loss
        earlier, so half of the allowed silence is enough here. Connections may fail a moment before the process has
        ended, and a busy machine answers late; but recovery must not wait long for a name.
        """
        deadline = time.monotonic() + FIND_LOST_S
        while True:
            ended, now = self._find_ended(), time.monotonic()
            lost = [
                name
                for name, peer in self._peers.items()
                if name in ended or self._is_silent(peer, now, self._silence_s / 2)
            ]
            if lost or now > deadline:
                return lost

    def last_activity(self, name: str) -> str:
        """The last reported activity of a peer, and its age; of this worker, its activity."""
        if name == self._name:
            return self.activity
        peer = self._peers[name]
        return f"{peer.activity}, heard {time.monotonic() - peer.heard_at:.1f} s ago"

    def close(self) -> None:
        self._closed.set()
        self._due.set()
        if self._socket is not None:
            self._socket.close()

    def _is_silent(self, peer: Peer, now: float, allowed_s: float) -> bool:
        """True for a peer without a heartbeat for so long, or without a first one although it should have joined."""
        return peer.heard_at < now - (allowed_s if peer.heard else self._join_s)

    def _find_ended(self) -> set[str]:
        """Peers whose machine answers that no process listens on their port."""
        with contextlib.ExitStack() as stack:
            probes = {}
            for name, peer in self._peers.items():
                probes[name] = probe = stack.enter_context(_datagram_socket(peer.address[0]))
                with contextlib.suppress(OSError):
                    probe.connect(peer.address)
                    probe.send(b"")
            time.sleep(PORT_ERROR_S)
            errors = {name: probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for name, probe in probes.items()}
        return {name for name, error in errors.items() if error == errno.ECONNREFUSED}

    def _send(self, opened: socket.socket) -> None:
        number = 0
        while True:
            self._due.wait(HEARTBEAT_INTERVAL_S)
            self._due.clear()
            if self._closed.is_set():
                return
            number += 1
            arrivals, gave_up = self._arrivals, self._gave_up
            message = HeartbeatMessage(number, self._name, self._world, self.activity[:200], arrivals, gave_up)
            content = encode_heartbeat(self._secret, message)
            for peer in list(self._peers.values()):
                try:
                    opened.sendto(content, peer.address)
                except OSError:  # The network is down or the socket is closed: peers notice that no heartbeat arrives.
                    continue

    def _receive(self, opened: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                content, source = opened.recvfrom(MAX_MESSAGE_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            if not content:  # A peer asks whether this port is still open.
                continue
            message = decode_heartbeat(self._secret, content)
            if message is None or message.number <= self._last_numbers.get(message.name, 0):
                self.rejections.add(str(source[0]))
                continue
            self._last_numbers[message.name] = message.number
            if peer := self._peers.get(message.name):
                peer.heard, peer.heard_at, peer.activity = True, time.monotonic(), message.activity
                peer.left = peer.joined and message.world != self._world
                peer.joined = peer.joined or message.world == self._world
                if peer.joined and message.world in (self._world, ""):
                    self._note_arrivals(peer, message)

    def _note_arrivals(self, peer: Peer, message: HeartbeatMessage) -> None:
        peer.arrivals, peer.gave_up = message.arrivals, message.gave_up
        if message.gave_up and message.arrivals > self._arrivals:
            self._left_behind = True


def encode_heartbeat(secret: str, message: HeartbeatMessage) -> bytes:
    content = json.dumps(message, ensure_ascii=False).encode()
    return sign(secret, b"heartbeat", content) + content


def decode_heartbeat(secret: str, received: bytes) -> HeartbeatMessage | None:
    """The heartbeat of a member of the launch; None for anything else."""
    signature, content = received[:SIGNATURE_BYTES], received[SIGNATURE_BYTES:]
    if not is_signed(secret, signature, b"heartbeat", content):
        return None
    return HeartbeatMessage(*json.loads(content))


def _datagram_socket(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
