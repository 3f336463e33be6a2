import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import authentication
from dragoman.authentication import (
    MAX_PENDING,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    AuthenticatedServer,
    Rejections,
    connect,
    is_signed,
    new_secret,
    sign,
)

SECRET = "secret of the launch"
TIMEOUT_S = 30.0


class EchoServer:
    """An authenticated server that returns what it receives, and records that it served."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.rejections = Rejections()
        self.server = AuthenticatedServer("127.0.0.1", 0, SECRET, "echo", self._serve, self.rejections)
        self.port = self.server.port

    def _serve(self, connection: socket.socket) -> None:
        received = connection.recv(100)
        self.served.append(received)
        connection.sendall(received)

    @property
    def rejected(self) -> int:
        return self.rejections._sources.total()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    made = EchoServer()
    yield made
    made.server.close()


def call(port: int, secret: str = SECRET, purpose: str = "echo") -> bytes:
    with connect("127.0.0.1", port, secret, purpose, TIMEOUT_S) as connection:
        connection.sendall(b"hello")
        return connection.recv(100)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met"
        time.sleep(0.01)


def test_members_of_a_launch_are_served(echo):
    assert call(echo.port) == b"hello"
    assert echo.rejected == 0


@pytest.mark.parametrize(("secret", "purpose"), [("another", "echo"), (SECRET, "store"), ("", "echo")])
def test_a_client_refuses_a_server_of_another_launch_or_purpose(echo, secret, purpose):
    with pytest.raises(OSError, match="not this launch"):
        call(echo.port, secret, purpose)
    wait_until(lambda: echo.rejected == 1)
    assert echo.served == []


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(NONCE_BYTES), bytes(1000), bytes(NONCE_BYTES + SIGNATURE_BYTES)]
)
def test_strangers_are_rejected_before_anything_is_served(echo, sent):
    with socket.create_connection(("127.0.0.1", echo.port), timeout=TIMEOUT_S) as stranger:
        stranger.sendall(sent)
    wait_until(lambda: echo.rejected == 1)
    assert echo.served == []
    assert call(echo.port) == b"hello"


def test_a_recorded_conversation_cannot_be_replayed(echo):
    nonce = bytes(NONCE_BYTES)
    with socket.create_connection(("127.0.0.1", echo.port), timeout=TIMEOUT_S) as member:
        member.sendall(nonce)
        challenge = member.recv(NONCE_BYTES + SIGNATURE_BYTES, socket.MSG_WAITALL)[:NONCE_BYTES]
        proof = sign(SECRET, b"client", b"echo", nonce, challenge)
        member.sendall(proof + b"hello")
        assert member.recv(100) == b"hello"
    with socket.create_connection(("127.0.0.1", echo.port), timeout=TIMEOUT_S) as stranger:
        stranger.sendall(nonce + proof + b"hello")
        wait_until(lambda: echo.rejected == 1)
    assert echo.served == [b"hello"]


def test_silent_strangers_do_not_keep_members_out(echo):
    silent = [socket.create_connection(("127.0.0.1", echo.port)) for _ in range(MAX_PENDING + 20)]
    assert call(echo.port) == b"hello"
    assert threading.active_count() < MAX_PENDING + 60
    for stranger in silent:
        stranger.close()
    wait_until(lambda: echo.rejected == len(silent))


def test_a_slow_stranger_is_rejected_after_a_while(echo, monkeypatch):
    monkeypatch.setattr(authentication, "PROOF_S", 0.1)
    with socket.create_connection(("127.0.0.1", echo.port), timeout=TIMEOUT_S) as stranger:
        stranger.sendall(b"a")
        assert stranger.recv(1) == b""
    wait_until(lambda: echo.rejected == 1)


def test_a_server_is_not_reachable_after_it_was_closed(echo):
    echo.server.close()
    with pytest.raises(OSError):
        call(echo.port)


def test_a_client_refuses_a_server_that_repeats_what_it_hears():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def mirror() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(connection.recv(1000) * 2)

        threading.Thread(target=mirror, daemon=True).start()
        with pytest.raises(OSError, match="not this launch"):
            call(listener.getsockname()[1])


def test_strangers_are_reported_once_in_a_while():
    rejections = Rejections()
    for number in range(10_000):
        rejections.add(f"198.51.100.{number % 2}")
    summary = rejections.take()
    assert summary is not None
    assert str(summary) == (
        "Rejected 10,000 messages or connections without the secret of this launch, from 198.51.100.0, 198.51.100.1"
    )
    rejections.add("198.51.100.3")
    assert rejections.take() is None


def test_many_addresses_take_little_memory():
    rejections = Rejections()
    for number in range(authentication.MAX_SOURCES * 2):
        rejections.add(str(number))
    assert len(rejections._sources) == authentication.MAX_SOURCES + 1
    assert rejections.take().count == authentication.MAX_SOURCES * 2


def test_each_launch_has_another_secret():
    assert len({new_secret() for _ in range(100)}) == 100


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.binary(max_size=20), max_size=5))
def test_a_signature_is_valid_for_the_same_parts_only(signed, others):
    assert is_signed(SECRET, sign(SECRET, *signed), *signed)
    assert is_signed(SECRET, sign(SECRET, *signed), *others) == (signed == others)
    assert not is_signed("another", sign(SECRET, *signed), *signed)
