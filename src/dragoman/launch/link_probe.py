"""Measure the network between two machines with plain TCP: no torch, no privileges."""

import contextlib
import socket
import struct
import threading
import time

from dragoman.step_model import TcpLink, time_large_message

LONG_S = 0.3
"""A link is measured with growing messages until one takes this long."""
FIRST_BYTES, MAX_BYTES = 1 << 18, 1 << 28
BLOCK_BYTES = 1 << 20
CONNECT_S = 10.0
_LENGTH = struct.Struct("!Q")
_RECEIVED = b"!"


class ProbeServer:
    """Receives messages of any length from any number of clients, and confirms each."""

    def __init__(self) -> None:
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._server = socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # Closed.
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=_receive, args=(connection,), daemon=True).start()


def _receive(connection: socket.socket) -> None:
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            left = _LENGTH.unpack(head)[0]
            while left and (read := stream.readinto(buffer[: min(left, len(buffer))])):
                left -= read
            connection.sendall(_RECEIVED)


def measure_link(address: str, port: int) -> TcpLink:
    """The link from this machine to a probe server."""
    with socket.create_connection((address, port), timeout=CONNECT_S) as connection:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trip_s = min(_time_message(connection, 0) for _ in range(5))
        size_bytes, spent_s = time_large_message(
            lambda size: _time_message(connection, size), FIRST_BYTES, MAX_BYTES, LONG_S
        )
    return TcpLink(8 * size_bytes / max(spent_s - round_trip_s, 1e-9), round_trip_s)


def _time_message(connection: socket.socket, size_bytes: int) -> float:
    started = time.perf_counter()
    connection.sendall(_LENGTH.pack(size_bytes))
    block = bytes(min(size_bytes, BLOCK_BYTES))
    left = size_bytes
    while left:
        connection.sendall(block[:left] if left < len(block) else block)
        left -= min(left, len(block))
    if connection.recv(1) != _RECEIVED:
        raise ConnectionError("the other machine closed the connection")
    return time.perf_counter() - started
