"""Relays for parts without authentication of their own, such as torch's TCPStore and torchft's lighthouse.

The part listens on the loopback address only. A relay server on the same machine lets members of the launch in; a relay
client on each other machine listens on its loopback address and forwards to that server.
"""

import contextlib
import socket
import threading
import time

from dragoman.authentication import AuthenticatedServer, Rejections, connect

LOOPBACK = "127.0.0.1"
STORE, LIGHTHOUSE = "store", "lighthouse"
"""Purposes of relays."""
CONNECT_S = 5.0
RETRY_S = 0.1
_BLOCK_BYTES = 1 << 16


class RelayServer:
    """Forwards authenticated connections to a port of this machine's loopback address."""

    def __init__(
        self, address: str, port: int, secret: str, purpose: str, target_port: int, rejections: Rejections
    ) -> None:
        self._target_port = target_port
        self._server = AuthenticatedServer(address, port, secret, purpose, self._forward, rejections)
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()

    def _forward(self, connection: socket.socket) -> None:
        with socket.create_connection((LOOPBACK, self._target_port), CONNECT_S) as target:
            _join(connection, target)


class RelayClient:
    """A port on this machine's loopback address, whose connections lead to a relay server."""

    def __init__(self, address: str, port: int, secret: str, purpose: str) -> None:
        self._address, self._port = address, port
        self._secret, self._purpose = secret, purpose
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"{purpose} relay", daemon=True).start()

    def wait_for_server(self, timeout_s: float) -> None:
        """Wait until the server is there. Otherwise clients would see their connections close, and report it."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                connect(self._address, self._port, self._secret, self._purpose, CONNECT_S).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def close(self) -> None:
        """Accept no more connections. The present ones continue."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # Closed.
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(connection,), daemon=True).start()

    def _forward(self, connection: socket.socket) -> None:
        with (
            connection,
            contextlib.suppress(OSError),  # The client sees that its connection closes.
            connect(self._address, self._port, self._secret, self._purpose, CONNECT_S) as server,
        ):
            _join(connection, server)


def _join(one: socket.socket, other: socket.socket) -> None:
    """Copy both ways until either side closes."""
    for connection in (one, other):
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_copy, args=(other, one), daemon=True)
    back.start()
    _copy(one, other)
    back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
    for connection in (source, target):
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
