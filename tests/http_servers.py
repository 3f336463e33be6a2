"""Servers in a thread of the test, and raw connections to them."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator

from hypothesis import strategies as st
from starlette.types import ASGIApp

from dragoman.http_server import make_server
from dragoman.listening_socket import bind_socket

STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) ")
PATIENCE_S = 60.0

hostile_bytes = st.binary(max_size=12) | st.sampled_from(
    [
        b"\xc3\xa9", b"\xff", b"\x00", b"%C3%A9", b"%FF", b"%00", b"\r\n", b"\\ud800", b"9" * 5000, b"\xef\xbf\xbf",
        b"\xf0", b'"', b"&", b"[" * 3000, b"nplurals=0;", b"\xc2\xb2", b"1e999", b"-1", b"null", b"\\u0000",
        b"<!DOCTYPE a []>",
    ]
)  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn, valid: bytes) -> bytes:
    """Bytes with hostile ones in some place."""
    begin = draw(st.integers(0, len(valid)))
    end = draw(st.integers(begin, min(begin + 8, len(valid))))
    return valid[:begin] + draw(hostile_bytes) + valid[end:]


@contextlib.contextmanager
def running_server(app: ASGIApp, *, read_timeout_s: float, max_connections: int = 512) -> Iterator[int]:
    """A server that listens on the port returned."""
    listener = bind_socket("127.0.0.1", 0)
    listener.listen(1024)
    server = make_server(app, shutdown_grace_s=1, read_timeout_s=read_timeout_s, max_connections=max_connections)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def exchange(port: int, request: bytes) -> bytes:
    """Send bytes, and receive until the server closes the connection."""
    with connect(port) as client, contextlib.suppress(ConnectionError):
        received = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
        while block := client.recv(1 << 16):
            received += block
        return received
    return received


def is_closed(client: socket.socket) -> bool:
    """True once the server has closed the connection. Discards what it has sent before."""
    client.settimeout(0.001)
    try:
        while client.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def drip_until_closed(client: socket.socket, dripped: bytes) -> None:
    """Send a byte every now and then. Fails if the server lets a client go on like this."""
    ends_at_s = time.monotonic() + PATIENCE_S
    while not is_closed(client):
        assert time.monotonic() < ends_at_s, "the server has not closed the connection"
        with contextlib.suppress(ConnectionError):
            client.sendall(dripped)
        time.sleep(0.05)
