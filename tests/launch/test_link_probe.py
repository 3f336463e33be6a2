import socket

import pytest

from dragoman.launch import link_probe
from dragoman.launch.link_probe import Receiver, measure


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setattr(link_probe, "LONG_S", 0.01)
    made = Receiver()
    yield made
    made.close()


def test_a_link_is_measured_with_messages_that_arrive(receiver):
    found = measure("127.0.0.1", receiver.port)
    assert found.bits_per_s > 0
    assert found.latency_s > 0


def test_several_can_measure_one_after_the_other(receiver):
    assert all(measure("127.0.0.1", receiver.port).bits_per_s > 0 for _ in range(3))


def test_a_visitor_who_leaves_early_disturbs_nobody(receiver):
    with socket.create_connection(("127.0.0.1", receiver.port)) as visitor:
        visitor.sendall(b"abc")
    assert measure("127.0.0.1", receiver.port).bits_per_s > 0


def test_nobody_there_is_an_error_that_the_agent_can_tell():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError):
        measure("127.0.0.1", port)
