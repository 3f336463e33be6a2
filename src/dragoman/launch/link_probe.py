"""What the network between two machines carries, measured with plain TCP: no torch, no privileges."""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass

LONG_S = 0.3
"""A link is measured with growing messages until one takes this long."""
FIRST_BYTES, MOST_BYTES = 1 << 18, 1 << 28
CONNECT_S = 10.0
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class LinkSpeed:
    """One direction between two machines."""

    bits_per_s: float
    latency_s: float
    """There and back."""


class Receiver:
    """Takes messages of any length from whoever comes, and confirms each."""

    def __init__(self) -> None:
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._welcome, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _welcome(self) -> None:
        with contextlib.suppress(OSError):  # Closed.
            while True:
                visitor, _ = self._server.accept()
                threading.Thread(target=_confirm, args=(visitor,), daemon=True).start()


def _confirm(visitor: socket.socket) -> None:
    room = memoryview(bytearray(1 << 20))
    with visitor, contextlib.suppress(OSError), visitor.makefile("rb") as stream:
        visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            left = _LENGTH.unpack(head)[0]
            while left and (read := stream.readinto(room[: min(left, len(room))])):
                left -= read
            visitor.sendall(b"!")


def measure(address: str, port: int) -> LinkSpeed:
    """The link to a receiver, as this machine sees it."""
    with socket.create_connection((address, port), timeout=CONNECT_S) as connection:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        latency_s = min(_time_message(connection, 0) for _ in range(5))
        size_bytes = FIRST_BYTES
        while _time_message(connection, size_bytes) < LONG_S and size_bytes < MOST_BYTES:
            size_bytes *= 4
        # A second one of the same size: shaped ports let the first bytes through at full speed.
        spent_s = _time_message(connection, size_bytes)
    return LinkSpeed(8 * size_bytes / max(spent_s - latency_s, 1e-9), latency_s)


def _time_message(connection: socket.socket, size_bytes: int) -> float:
    started = time.perf_counter()
    connection.sendall(_LENGTH.pack(size_bytes))
    block = bytes(min(size_bytes, 1 << 20))
    left = size_bytes
    while left:
        connection.sendall(block[:left] if left < len(block) else block)
        left -= min(left, len(block))
    if connection.recv(1) != b"!":
        raise ConnectionError("the other machine ended the connection")
    return time.perf_counter() - started
