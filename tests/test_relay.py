import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch  # noqa: F401 (torch loads its C++ part)
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from dragoman.authentication import Rejections
from dragoman.distributed.listener_filter import create_listeners
from dragoman.distributed.static_store import serve_store
from dragoman.relay import LOOPBACK, STORE, RelayClient, RelayServer

SECRET = "secret of the launch"


@pytest.fixture
def relayed_store() -> Iterator[tuple[TCPStore, RelayServer]]:
    store = serve_store()
    server = RelayServer(LOOPBACK, 0, SECRET, STORE, store.port, Rejections())
    yield store, server
    server.close()


def test_a_store_is_used_through_a_relay(relayed_store):
    store, server = relayed_store
    client = RelayClient(LOOPBACK, server.port, SECRET, STORE)
    remote = TCPStore(LOOPBACK, client.port, is_master=False)
    remote.set("key", "value " * 100_000)
    assert store.get("key") == b"value " * 100_000
    store.set("answer", "42")
    assert remote.get("answer") == b"42"
    client.close()


def test_a_stranger_does_not_reach_the_store(relayed_store):
    store, server = relayed_store
    client = RelayClient(LOOPBACK, server.port, "another secret", STORE)
    with socket.create_connection((LOOPBACK, client.port)) as connection:
        assert connection.recv(1) == b""
    with pytest.raises(RuntimeError):
        TCPStore(LOOPBACK, server.port, is_master=False, timeout=timedelta(seconds=1))
    assert store.num_keys() <= 1  # Its own.
    client.close()


def test_the_store_listens_on_the_loopback_address_only():
    _, descriptors = create_listeners(serve_store)
    addresses = [socket.socket(fileno=os.dup(descriptor)).getsockname()[0] for descriptor in descriptors]
    assert addresses == [LOOPBACK]


def test_connections_end_on_both_sides(relayed_store):
    ended = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(10):
                    pass
            ended.set()

        threading.Thread(target=serve, daemon=True).start()
        server = RelayServer(LOOPBACK, 0, SECRET, STORE, listener.getsockname()[1], Rejections())
        client = RelayClient(LOOPBACK, server.port, SECRET, STORE)
        with socket.create_connection((LOOPBACK, client.port)) as connection:
            connection.sendall(b"hello")
        assert ended.wait(30)
        server.close()
        client.close()
