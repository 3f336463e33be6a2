import socket

import pytest

from dragoman.launch import link_probe
from dragoman.launch.link_probe import ProbeServer, measure_link


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(link_probe, "LONG_S", 0.01)
    made = ProbeServer("127.0.0.1", "secret")
    yield made
    made.close()


def test_a_link_is_measured_with_messages_that_arrive(server):
    found = measure_link("127.0.0.1", server.port, "secret")
    assert found.bits_per_s > 0
    assert found.round_trip_s > 0


def test_a_server_can_be_used_several_times(server):
    assert all(measure_link("127.0.0.1", server.port, "secret").bits_per_s > 0 for _ in range(3))


def test_a_client_that_disconnects_early_does_no_harm(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"abc")
    assert measure_link("127.0.0.1", server.port, "secret").bits_per_s > 0


def test_a_closed_port_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError):
        measure_link("127.0.0.1", port, "secret")
