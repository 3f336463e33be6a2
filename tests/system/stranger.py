"""A stranger on the network of test hosts: sends messages to every port that it can reach."""

import contextlib
import json
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from dragoman.authentication import NONCE_BYTES, SIGNATURE_BYTES, sign
from dragoman.distributed.heartbeat import HeartbeatMessage, encode_heartbeat

from .hosts import Host

SSH_PORT = 22
CONNECTIONS = 200
"""Connections that are open at the same time."""
ANSWER_S = 0.3
LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""


@dataclass(frozen=True)
class OpenPort:
    """A port that other machines can reach."""

    protocol: str
    address: str
    port: int


def open_ports(host: Host) -> list[OpenPort]:
    """Ports of a host on other addresses than its loopback address, without its sshd."""
    found = []
    for protocol in ("tcp", "udp", "tcp6", "udp6"):
        lines = host.run(["cat", f"/proc/net/{protocol}"]).stdout.splitlines()[1:]
        for fields in map(str.split, lines):
            address, port = fields[1].split(":")
            listens = fields[3] == LISTEN if protocol.startswith("tcp") else fields[2].endswith(":0000")
            is_loopback = address in ("0100007F", "00000000000000000000000001000000")
            if listens and not is_loopback and int(port, 16) != SSH_PORT:
                found.append(OpenPort(protocol[:3], host.address, int(port, 16)))
    return sorted(set(found), key=lambda each: (each.protocol, each.port))


_SNIFF = """
import json, socket, sys
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x0800))
for _ in range(int(sys.argv[1])):
    packet = sniffer.recv(65535)[14:]
    header = 4 * (packet[0] & 15)
    if packet[9] == 17:
        print(json.dumps(["udp", packet[header + 8:].hex()]), flush=True)
    elif packet[9] == 6:
        payload = packet[header + 4 * (packet[header + 12] >> 4):]
        ssh = b"\\x00\\x16"
        if payload and ssh not in (packet[header:header + 2], packet[header + 2:header + 4]):
            print(json.dumps(["tcp", payload[:200].hex()]), flush=True)
"""


class Recording:
    """Messages that a host's network has carried, for a replay. Records while it is entered."""

    def __init__(self, host: Host, packets: int = 5000) -> None:
        self._process = host.start([sys.executable, "-c", _SNIFF, str(packets)], stdout=subprocess.PIPE)
        self._messages: list[tuple[str, bytes]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            protocol, content = json.loads(line)
            self._messages.append((protocol, bytes.fromhex(content)))

    def messages(self, protocol: str) -> list[bytes]:
        return [content for kind, content in list(self._messages) if kind == protocol and content]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def hostile_messages(protocol: str, recorded: Sequence[bytes]) -> Iterator[bytes]:
    """Without end: random, truncated, replayed, and well-formed messages without the secret, in turn."""
    name = f"00001-{secrets.token_hex(16)}"
    well_formed = {
        "udp": [encode_heartbeat("another secret", HeartbeatMessage(10**9, name, "", "left"))],
        "tcp": [
            # A relay's handshake, torch's store, an HTTP/2 client of a lighthouse, and gloo's sequence number.
            secrets.token_bytes(NONCE_BYTES) + sign("another secret", b"client", b"store", b"", b""),
            b"\x07" + struct.pack("<I", 0x3C85F7CE) + b"\x00" + struct.pack("<Q", 8) + b"member-1",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
            struct.pack("<q", 1),
        ],
    }[protocol]
    replays = cycle(recorded or [b"\0"])
    for correct in cycle(well_formed):
        replayed = next(replays)
        yield secrets.token_bytes(secrets.randbelow(200) + 1)
        yield replayed[: max(1, len(replayed) // 2)]
        yield replayed
        yield correct


def attack(port: OpenPort, recorded: Sequence[bytes], count: int) -> int:
    """Send so many hostile messages to a port, each over its own connection. Returns how many connections opened."""
    messages = islice(hostile_messages(port.protocol, recorded), count)
    if port.protocol == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number, message in enumerate(messages):
                sender.sendto(message, (port.address, port.port))
                if number % 50 == 0:
                    time.sleep(0.01)  # A flood would drown the real heartbeats, which no secret prevents.
        return 0
    opened = 0
    while batch := list(islice(messages, CONNECTIONS)):
        opened += _send_at_once(port, batch)
    return opened


def _send_at_once(port: OpenPort, messages: Sequence[bytes]) -> int:
    """Open a connection for each message, send it, and read what comes back."""
    with contextlib.ExitStack() as stack:
        pending: dict[int, tuple[socket.socket, bytes]] = {}
        poll = select.poll()
        for message in messages:
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex((port.address, port.port))
            pending[connection.fileno()] = connection, message
            poll.register(connection, select.POLLOUT)
        opened = 0
        deadline = time.monotonic() + ANSWER_S
        while pending and (events := poll.poll(max(0, 1000 * (deadline - time.monotonic())))):
            for descriptor, _ in events:
                connection, message = pending.pop(descriptor)
                poll.unregister(descriptor)
                with contextlib.suppress(OSError):
                    connection.sendall(message)
                    opened += 1
        return opened


def join_as_a_worker(port: OpenPort, secret: str = "another secret") -> bytes:
    """Answer a relay's challenge with a wrong secret. Returns what the relay sends after it."""
    with socket.create_connection((port.address, port.port), timeout=5) as connection:
        nonce = os.urandom(NONCE_BYTES)
        connection.sendall(nonce)
        challenge = connection.recv(NONCE_BYTES + SIGNATURE_BYTES, socket.MSG_WAITALL)[:NONCE_BYTES]
        connection.sendall(sign(secret, b"client", b"store", nonce, challenge))
        with contextlib.suppress(OSError):
            return connection.recv(100)
        return b""
