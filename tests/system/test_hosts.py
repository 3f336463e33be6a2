"""Simulated hosts: isolation, slow and disconnected links, frozen and killed hosts, cleanup."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import hosts as test_bed
from .hosts import HOME, NAME_PREFIX, HostCgroups, Hosts, cgroup_roots, missing_requirements

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]

ACCEPT_ONE = (
    "import socket; s = socket.create_server(('', 4000)); print('ready', flush=True); c, _ = s.accept(); c.recv(9)"
)
COUNT_BYTES = (
    "import socket; s = socket.create_server(('', 4000)); print('ready', flush=True); c, _ = s.accept()\n"
    "n = 0\nwhile d := c.recv(1 << 16): n += len(d)\nprint(n)"
)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(["a", "b"], quotas={"b": 0.25}) as created:
        yield created


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-c", program]


def test_each_host_has_its_own_name_address_and_home_folder(hosts):
    for host in hosts:
        assert host.ssh(["hostname"]).stdout.strip() == host.name
        assert host.address in host.ssh(["ip", "-brief", "address", "show", host.interface]).stdout
        host.ssh(["sh", "-c", f"echo {host.name} > mine"])
        assert (host.folder / "mine").read_text().strip() == host.name
        assert host.run(["cat", f"{HOME}/mine"]).stdout.strip() == host.name


def test_hosts_connect_to_each_other_by_name_and_check_host_keys(hosts):
    assert hosts["a"].ssh(["ssh", "b", "hostname"]).stdout.strip() == "b"
    known_hosts = hosts.folder / "known_hosts"
    original = known_hosts.read_text()
    first, second = original.splitlines()
    known_hosts.write_text(f"{hosts['a'].address} {second.partition(' ')[2]}\n")
    refused = hosts["a"].ssh(["hostname"], check=False)
    known_hosts.write_text(original)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr
    assert first != second


def test_link_rate_can_be_limited_and_the_limit_removed(hosts):
    size_bytes = 2_000_000

    def send() -> float:
        with hosts["b"].start(python(COUNT_BYTES), stdout=subprocess.PIPE) as receiver:
            assert receiver.stdout.readline() == "ready\n"
            started = time.monotonic()
            with socket.create_connection((hosts["b"].address, 4000)) as connection:
                connection.sendall(bytes(size_bytes))
            assert int(receiver.stdout.readline()) == size_bytes
            return time.monotonic() - started

    hosts["b"].set_rate("16mbit")
    slow_s = send()
    hosts["b"].set_rate(None)
    assert size_bytes * 8 / slow_s < 18e6
    assert send() < slow_s


def test_round_trips_can_be_lengthened_and_bytes_arrive_as_they_were_sent(hosts):
    text = "0123456789" * 100_000
    (hosts["a"].folder / "text").write_text(text)
    connect = (
        "import socket, time\nt = time.monotonic(); socket.create_connection(('a', 22)); print(time.monotonic() - t)"
    )
    for host in hosts:
        host.set_round_trip(0.08)
    try:
        assert float(hosts["b"].run(python(connect)).stdout) >= 0.08
        assert hosts["b"].run(["ssh", "a", "cat", "text"]).stdout == text
        hosts["b"].disconnect()
        hosts["b"].reconnect()
        assert hosts["b"].run(["ssh", "a", "hostname"]).stdout.strip() == "a"
    finally:
        for host in hosts:
            host.set_round_trip(0)


def test_invalid_rate_is_rejected(hosts):
    with pytest.raises(ValueError, match="write it like 100mbit"):
        hosts["a"].set_rate("fast")


def test_cpu_quota_throttles_a_host(hosts):
    spin = "import time; n = time.process_time\nwhile n() < 0.2: pass"
    hosts["b"].ssh(python(spin))
    cpu_stat = dict(line.split() for line in (cgroup_roots(hosts.name)[0] / "b" / "cpu.stat").read_text().splitlines())
    assert int(cpu_stat["nr_throttled"]) > 0


def test_data_sent_over_a_disconnected_link_arrives_after_reconnecting(hosts):
    with hosts["b"].start(python(COUNT_BYTES), stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout.readline() == "ready\n"
        with socket.create_connection((hosts["b"].address, 4000)) as connection:
            hosts["b"].disconnect()
            connection.sendall(b"patience")
            time.sleep(0.5)
            assert receiver.poll() is None
            hosts["b"].reconnect()
        assert receiver.stdout.readline() == "8\n"


def test_frozen_host_runs_nothing_until_it_is_thawed(hosts):
    tick = (
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
        "while True: pathlib.Path('tick').write_text(str(time.monotonic())); time.sleep(0.01)"
    )
    with hosts["a"].start(python(tick)):
        while not (hosts["a"].folder / "tick").exists():
            time.sleep(0.01)
        hosts["a"].freeze()
        before = (hosts["a"].folder / "tick").read_text()
        time.sleep(0.3)
        assert (hosts["a"].folder / "tick").read_text() == before
        hosts["a"].thaw()
        while (hosts["a"].folder / "tick").read_text() in ("", before):
            time.sleep(0.01)
        hosts["a"].run(["kill", "-KILL", (hosts["a"].folder / "pid").read_text()])


def test_killed_host_closes_no_connection_and_restarts_with_its_files_but_no_processes(hosts):
    (hosts["b"].folder / "kept").write_text("yes")
    with hosts["b"].start(python(ACCEPT_ONE), stdout=subprocess.PIPE) as listening:
        assert listening.stdout.readline() == "ready\n"
        with socket.create_connection((hosts["b"].address, 4000)) as connection:
            hosts["b"].kill()
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
    assert listening.returncode != 0
    hosts["b"].restart()
    assert hosts["b"].ssh(["cat", "kept"]).stdout == "yes"
    assert {Path(f"/proc/{pid}/comm").read_text() for pid in hosts["b"].processes()} == {"sshd\n"}


def test_two_groups_of_hosts_can_exist_at_the_same_time(hosts):
    with Hosts(["a"]) as other:
        assert other["a"].address != hosts["a"].address
        assert other["a"].ssh(["hostname"]).stdout == "a\n"
        assert other["a"].folder != hosts["a"].folder
    assert hosts["a"].ssh(["hostname"]).stdout == "a\n"


def leftovers(name: str, folder: Path) -> list[str]:
    cgroups = [str(cgroup) for root in cgroup_roots("") for cgroup in root.glob(name)]
    links = subprocess.check_output(["ip", "-brief", "link"], text=True)
    interface = name.replace(NAME_PREFIX, "hosts") + "@"
    return (
        cgroups + [link for link in links.splitlines() if link.startswith(interface)] + [str(folder)] * folder.exists()
    )


def test_hosts_are_removed_after_an_exception():
    with contextlib.suppress(KeyboardInterrupt), Hosts(["a"]) as hosts:
        hosts["a"].freeze()
        raise KeyboardInterrupt
    assert leftovers(hosts.name, hosts.folder) == []


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_hosts_end_with_the_process_that_created_them(signal_number):
    command = [sys.executable, "-m", "tests.system.hosts", "--hosts", "2", "--quotas", "b=0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        config = Path(process.stdout.readline().split()[-1])
        while "Ctrl-C" not in (line := process.stdout.readline()):
            assert line
        hostname = subprocess.check_output(
            ["ssh", "-F", config, "b", "sleep 1000 >/dev/null 2>&1 & hostname"], text=True
        )
        assert hostname == "b\n"
        process.send_signal(signal_number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=20)
    deadline = time.monotonic() + 20
    while (alive := _command_lines_with(str(config.parent))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []
    assert config.exists() == (signal_number == signal.SIGKILL)
    shutil.rmtree(config.parent, ignore_errors=True)  # A killed process cannot remove its files.


def _command_lines_with(text: str) -> list[str]:
    """Command lines of running processes, other than this one, that contain a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if text in line and int(entry.name) != os.getpid():
                found.append(line)
    return found


def test_cgroups_of_version_2_are_limited_and_frozen_by_their_own_files(tmp_path, monkeypatch):
    """This machine may have either version, so the files of a directory stand for those of the kernel."""
    monkeypatch.setattr(test_bed, "CGROUPS", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    cgroups = HostCgroups("group", "a")
    assert cgroups.paths == [tmp_path / "group" / "a"]
    cgroups.create()
    assert [(tmp_path / level / "cgroup.subtree_control").read_text() for level in ("", "group")] == ["+cpu", "+cpu"]
    cgroups.set_quota(0.5)
    assert (tmp_path / "group" / "a" / "cpu.max").read_text() == "5000 10000"
    cgroups.set_quota(None)
    assert (tmp_path / "group" / "a" / "cpu.max").read_text() == "max 10000"
    (tmp_path / "group" / "a" / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    cgroups.set_frozen(True)
    assert (tmp_path / "group" / "a" / "cgroup.freeze").read_text() == "1"


def two_hosts(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).parents[2] / "examples" / "two-hosts"
    return subprocess.run([sys.executable, script, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_command_of_the_tutorial_creates_changes_and_removes_two_hosts(tmp_path):
    refused = two_hosts(tmp_path, "down")
    assert refused.returncode == 1
    assert "There are no hosts" in refused.stderr
    created = two_hosts(tmp_path, "up")
    try:
        assert created.returncode == 0, created.stdout + created.stderr
        folder = (tmp_path / "hosts").resolve()
        ssh = ["ssh", "-F", str(tmp_path / "hosts" / "ssh_config"), "b"]
        assert subprocess.check_output([*ssh, "hostname"], text=True).strip() == "b"
        assert "are up already" in two_hosts(tmp_path, "up").stderr
        assert two_hosts(tmp_path, "link", "10mbit").returncode == 0
        assert "rate 10Mbit" in subprocess.check_output([*ssh, "tc qdisc show dev eth0"], text=True)
        assert two_hosts(tmp_path, "cpu", "b", "0.3").returncode == 0
        for wrong in (["link", "fast"], ["cpu", "c", "1"], ["cpu", "a", "many"], ["sideways"], []):
            assert two_hosts(tmp_path, *wrong).returncode == 1
    finally:
        removed = two_hosts(tmp_path, "down")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert list(tmp_path.iterdir()) == []
    assert not folder.exists()
