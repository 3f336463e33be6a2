"""Who is alive: each worker tells the others so a few times a second, with the last thing that it did.

A dead process closes its connections and everyone hears of it. A frozen machine or a cut cable closes nothing: whoever
waits for it would wait for minutes. Small datagrams beside the exchange tell silence from slowness within seconds.
"""

import contextlib
import errno
import json
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

BEAT_S = 0.1
SILENCE_S = 1.5
"""Without a beat for this long a worker counts as lost. Busy machines miss a few beats, not fifteen; and who is taken
for lost by mistake comes back with the next step."""
JOINING_S = 4.0
"""Who is heard from elsewhere for this long after a world began will not come to it."""
ECHO_S = 0.1
"""How long a machine may take to say that a process has ended."""
LARGEST_BEAT = 1024

Address = tuple[str, int]


@dataclass
class Peer:
    """What is known of another worker of our world."""

    address: Address
    heard_at: float
    doing: str = "starting"
    """What it last said that it did, such as `step 41`."""
    joined: bool = False
    left: bool = False
    """Whether it has been in our world and works in another now, or in none."""


class Heartbeat:
    """Sends this worker's beats and hears the others'. One thread each way, until closed."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self.port: int = self._socket.getsockname()[1]
        self.doing = "starting"
        self._name, self._world = "", ""
        self._joined_at = 0.0
        self._peers: dict[str, Peer] = {}
        self._closed = threading.Event()
        for run in (self._send, self._receive):
            threading.Thread(target=run, name="pulse", daemon=True).start()

    def join(self, world: str, name: str, addresses: Mapping[str, Address]) -> None:
        """Begin to beat as `name` for the others of a world. All of them count as heard of now."""
        self._joined_at = time.monotonic()
        self._name, self._world = name, world
        self._peers = {peer: Peer(address, self._joined_at) for peer, address in addresses.items()}

    def leave(self) -> None:
        """Tell the peers with every beat that this worker is in no world now."""
        self._world = ""

    def missing(self) -> list[str]:
        """Peers that are silent, or have left."""
        now = time.monotonic()
        late = now - self._joined_at > JOINING_S
        return [
            name
            for name, peer in self._peers.items()
            if peer.left or peer.heard_at < now - SILENCE_S or (late and not peer.joined)
        ]

    def find_lost(self) -> list[str]:
        """After a failure, whom it was due to: peers whose process has ended, or who are no longer heard.

        Whoever has left has lost someone too, and is not to blame. He may have noticed a moment before us: half of the
        silence is proof enough now.
        """
        ended = self._find_ended()
        latest = time.monotonic() - SILENCE_S / 2
        return [name for name, peer in self._peers.items() if name in ended or peer.heard_at < latest]

    def last_words(self, name: str) -> str:
        """What a peer did when it was last heard, for a person."""
        peer = self._peers[name]
        return f"{peer.doing}, heard {time.monotonic() - peer.heard_at:.1f} s ago"

    def close(self) -> None:
        self._closed.set()
        self._socket.close()

    def _find_ended(self) -> set[str]:
        """Peers whose machine answers that nobody listens there any more."""
        with contextlib.ExitStack() as stack:
            probes = {}
            for name, peer in self._peers.items():
                probes[name] = probe = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                with contextlib.suppress(OSError):
                    probe.connect(peer.address)
                    probe.send(b"")
            time.sleep(ECHO_S)
            errors = {name: probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for name, probe in probes.items()}
        return {name for name, error in errors.items() if error == errno.ECONNREFUSED}

    def _send(self) -> None:
        while not self._closed.wait(BEAT_S):
            message = json.dumps([self._name, self._world, self.doing[:200]], ensure_ascii=False).encode()
            for peer in list(self._peers.values()):
                try:
                    self._socket.sendto(message, peer.address)
                except OSError:  # The network is down, or we are closing: the silence speaks for itself.
                    continue

    def _receive(self) -> None:
        while not self._closed.is_set():
            try:
                message = self._socket.recv(LARGEST_BEAT)
            except OSError:
                return
            name, world, doing = read_heartbeat(message) or ("", "", "")
            if peer := self._peers.get(name):
                peer.heard_at, peer.doing = time.monotonic(), doing
                peer.left = peer.joined and world != self._world
                peer.joined = peer.joined or world == self._world


def read_heartbeat(message: bytes) -> tuple[str, str, str] | None:
    """Name, world and doing of a beat as it came over the network; nothing where it is none."""
    try:
        parts = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
        return None
    return parts[0], parts[1], parts[2]
