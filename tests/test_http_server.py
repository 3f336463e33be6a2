"""Limits of the HTTP server, with real connections."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from starlette.types import Receive, Scope, Send

from .http_servers import PATIENCE_S, connect, drip_until_closed, exchange, is_closed, running_server

REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"x" * 12_000_000
MAX_CONNECTIONS = 16
released: list[asyncio.Event] = []


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/wait":
        released.append(asyncio.Event())
        await released[-1].wait()
    while scope["path"] == "/read" and (await receive()).get("more_body"):
        pass
    if scope["path"] == "/release":
        released.pop().set()
    body = LARGE if scope["path"] == "/large" else b"ok"
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def port() -> Iterator[int]:
    with running_server(app, read_timeout_s=0.5, max_connections=MAX_CONNECTIONS) as port:
        yield port


def receive_response(client: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"ok"):
        block = client.recv(1000)
        assert block, received
        received += block
    return received


def wait_until(condition: Callable[[], bool]) -> None:
    ends_at_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_at_s, "the condition was not met"
        time.sleep(0.05)


def test_a_client_that_sends_nothing_is_disconnected(port: int) -> None:
    with connect(port) as client:
        assert client.recv(1) == b""


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_a_head_that_arrives_slowly_is_bounded_for_every_request_of_a_connection(port: int, requests: int) -> None:
    with connect(port) as client:
        for _ in range(requests):
            client.sendall(REQUEST % b"")
            assert receive_response(client).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        drip_until_closed(client, b"x")


def test_a_body_that_nobody_reads_and_that_arrives_slowly_is_bounded(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        drip_until_closed(client, b"x")


@pytest.mark.parametrize("requests", [1, 30])
def test_a_client_that_does_not_take_its_response_is_disconnected(port: int, requests: int) -> None:
    with connect(port) as client:
        client.sendall((REQUEST % b"large") * requests)
        wait_until(lambda: was_reset(client))


def was_reset(client: socket.socket) -> bool:
    """True once the server has closed the connection although the client reads nothing."""
    try:
        client.send(b"x")
    except ConnectionError:
        return True
    return False


def test_a_client_that_takes_its_response_slowly_gets_all_of_it() -> None:
    with running_server(app, read_timeout_s=3) as port, connect(port) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(REQUEST % b"large")
        received = 0
        started_at_s = time.monotonic()
        while received < len(LARGE):
            block = client.recv(1 << 16)
            assert block, f"closed after {received} bytes"
            received += len(block)
            if time.monotonic() < started_at_s + 5:
                time.sleep(0.05)


def test_a_body_of_many_tiny_chunks_is_refused(port: int) -> None:
    head = b"POST /read HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert exchange(port, head + b"1\r\na\r\n" * 50_000).startswith(b"HTTP/1.1 400")
    for chunk, count in ((b"1\r\na\r\n", 900), (b"64\r\n" + b"a" * 100 + b"\r\n", 5000)):
        assert exchange(port, head + chunk * count + b"0\r\n\r\n").endswith(b"ok")


def test_idle_connections_do_not_keep_others_out(port: int) -> None:
    with contextlib.ExitStack() as connections:
        idle = [connections.enter_context(connect(port)) for _ in range(3 * MAX_CONNECTIONS)]
        for client in idle:
            with contextlib.suppress(ConnectionError):
                client.sendall(REQUEST % b"")
                client.recv(1)  # It waits for its client again, or has been closed.
        assert exchange(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").endswith(b"ok")


def test_requests_in_progress_do_not_keep_others_out(port: int) -> None:
    with contextlib.ExitStack() as connections:
        for number in range(MAX_CONNECTIONS):
            connections.enter_context(connect(port)).sendall(REQUEST % b"wait")
            wait_until(lambda: len(released) == number + 1)  # noqa: B023 (called at once)
        request = b"GET /release HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        for _ in range(MAX_CONNECTIONS):
            assert exchange(port, request).endswith(b"ok")


def test_requests_in_progress_are_not_closed_for_new_connections(port: int) -> None:
    with contextlib.ExitStack() as connections:
        working = connections.enter_context(connect(port))
        working.sendall(REQUEST % b"wait")
        wait_until(lambda: bool(released))
        idle = [connections.enter_context(connect(port)) for _ in range(3 * MAX_CONNECTIONS)]
        wait_until(lambda: any(map(is_closed, idle)))
        exchange(port, b"GET /release HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert receive_response(working).startswith(b"HTTP/1.1 200")
