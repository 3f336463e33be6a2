"""Strangers on the network of a run: what they send is dropped, and the run does not notice it."""

import os
import signal
import subprocess
import sys

import pytest

from dragoman.errors import EXIT_RESUMABLE
from dragoman.events import MessagesRejected, StepDone
from dragoman.run_folder import RunFolder

from ..processes import losses
from .hosts import HOME, Hosts, missing_requirements
from .stranger import Recording, attack, join_as_a_worker, open_ports
from .test_launch import ENDLESS, QUIET, finish, start, wait_for_no_worker, wait_for_step, workers_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]


@pytest.fixture(scope="module")
def hosts():
    with Hosts(["a", "b"]) as made:
        yield made


def test_no_port_is_open_to_others_while_workers_of_one_machine_train(hosts, data):
    arguments = ["train", "tiny", "--data", str(data.path), "--out", f"{HOME}/alone", "--workers", "2", *ENDLESS]
    process = hosts["a"].start([sys.executable, "-m", "dragoman", *arguments], stdout=subprocess.DEVNULL)
    seen = []
    while not losses(hosts["a"].folder / "alone") and process.poll() is None:
        seen += open_ports(hosts["a"])
    seen += open_ports(hosts["a"])
    for number in workers_of(hosts["a"]):
        os.kill(number, signal.SIGKILL)
    process.wait(timeout=60)
    assert seen == []


def test_a_static_run_does_not_notice_strangers(hosts, data):
    recording = Recording(hosts["b"])
    process = start(hosts, "a,b", data.path, *QUIET, *ENDLESS)
    run = hosts["a"].folder / "run"
    wait_for_step(run, 3, process)
    ports = [port for host in hosts for port in open_ports(host)]
    protocols = [(port.address, port.protocol) for port in ports]
    assert protocols.count((hosts["a"].address, "udp")) == 1, "heartbeats"
    assert len([port for port in ports if port.protocol == "tcp"]) == 3, "the relay to the store, and gloo's own ports"
    for port in ports:
        opened = attack(port, recording.messages(port.protocol), 400)
        assert bool(opened) == (port.protocol == "tcp" and join(port))
    recording.close()
    reached = max(event.step for event in RunFolder(run).events(0) if isinstance(event, StepDone))
    wait_for_step(run, reached + 5, process)
    process.terminate()
    output = finish(process, EXIT_RESUMABLE)
    events = RunFolder(run).events(0)
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps == list(range(1, len(steps) + 1))
    assert [event.sources for event in events if isinstance(event, MessagesRejected)] == [[hosts.address]]
    assert f"messages or connections of strangers from {hosts.address}" in output
    wait_for_no_worker(hosts)


def join(port) -> bool:
    """Whether a port accepts connections at all. The relay closes those without the secret; gloo's drop them."""
    try:
        assert join_as_a_worker(port) == b""
    except TimeoutError:
        return False
    return True
