"""Measure the network between two machines with plain TCP: no torch, no privileges."""

import socket
import struct
import time

from dragoman.authentication import AuthenticatedServer, Rejections, connect
from dragoman.link_rate import measure_rate
from dragoman.step_model import TcpLink

LONG_S = 0.3
"""A link is measured with growing messages until twice the bytes take this much longer."""
FIRST_BYTES, MAX_BYTES = 1 << 16, 1 << 28
BLOCK_BYTES = 1 << 20
CONNECT_S = 10.0
PROBE = "probe"
_LENGTH = struct.Struct("!Q")
_RECEIVED = b"!"


class ProbeServer:
    """Receives messages of any length from other hosts of the launch, and confirms each."""

    def __init__(self, address: str, secret: str) -> None:
        self._server = AuthenticatedServer(address, 0, secret, PROBE, _receive, Rejections())
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()


def _receive(connection: socket.socket) -> None:
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with connection.makefile("rb") as stream:
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            left = _LENGTH.unpack(head)[0]
            while left and (read := stream.readinto(buffer[: min(left, len(buffer))])):
                left -= read
            connection.sendall(_RECEIVED)


def measure_link(address: str, port: int, secret: str) -> TcpLink:
    """The link from this machine to a probe server."""
    with connect(address, port, secret, PROBE, CONNECT_S) as connection:
        round_trip_s = min(_time_message(connection, 0) for _ in range(5))
        bytes_per_s = measure_rate(
            lambda size_bytes: _time_message(connection, size_bytes), FIRST_BYTES, MAX_BYTES, round_trip_s, LONG_S
        )
    return TcpLink(8 * bytes_per_s, round_trip_s)


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
