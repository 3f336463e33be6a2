import socket
import struct
import sys
import threading

import pytest

from dragoman.distributed.listener_filter import DESCRIPTORS, admit_only, create_listeners, source_filter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="socket filters are part of Linux")


@pytest.fixture
def listener():
    opened, descriptors = create_listeners(lambda: socket.create_server(("127.0.0.1", 0)))
    assert descriptors == [opened.fileno()]
    with opened:
        yield opened


def can_connect(listener: socket.socket, source: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection(listener.getsockname()[:2], timeout=0.5, source_address=(source, 0)):
            return True
    except TimeoutError:
        return False


def test_only_the_listeners_that_a_function_opens_are_found(listener):
    made, descriptors = create_listeners(lambda: "no socket")
    assert (made, descriptors) == ("no socket", [])


def test_looking_for_listeners_leaves_no_descriptor_open(listener):
    before, times = len(list(DESCRIPTORS.iterdir())), 200
    for _ in range(times):
        create_listeners(lambda: None)
    opened = len(list(DESCRIPTORS.iterdir())) - before
    assert opened < times / 2, "threads of other tests may open and close some"


def test_a_filter_is_attached_while_no_other_thread_looks_for_listeners():
    opened, descriptors = create_listeners(lambda: socket.create_server(("127.0.0.1", 0)))

    def create() -> tuple[threading.Thread, bool]:
        thread = threading.Thread(target=admit_only, args=(descriptors, ["127.0.0.1"]))
        thread.start()
        thread.join(0.2)
        return thread, thread.is_alive()

    with opened:
        (thread, has_waited), found = create_listeners(create)
        thread.join()
    assert has_waited, "its copy of the descriptor would look like a new listener"
    assert found == []


def test_connections_of_other_addresses_are_dropped(listener):
    admit_only([listener.fileno()], ["127.0.0.2", "127.0.0.3"])
    assert [can_connect(listener, f"127.0.0.{host}") for host in (1, 2, 3, 4)] == [False, True, True, False]


def test_a_closed_listener_keeps_its_connections(listener):
    admit_only([listener.fileno()], ["127.0.0.1"])
    with socket.create_connection(listener.getsockname()[:2], timeout=30) as client:
        accepted, _ = listener.accept()
        admit_only([listener.fileno()], [])
        assert not can_connect(listener)
        with accepted:
            client.sendall(b"still here")
            assert accepted.recv(100) == b"still here"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_addresses_of_ip_version_6_are_filtered():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        admit_only([listener.fileno()], ["2001:db8::1"])
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname()[:2], timeout=0.5)
        admit_only([listener.fileno()], ["2001:db8::1", "::1"])
        socket.create_connection(listener.getsockname()[:2], timeout=30).close()


def test_a_filter_of_no_address_drops_everything():
    assert source_filter([]) == struct.pack("HBBI", 0x06, 0, 0, 0)
