"""The test bed itself: hosts that are apart, links that are slow or cut, machines that freeze and die."""

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

from .hosts import CGROUPS, CONTROLLERS, HOME, Hosts, why_not

pytestmark = [pytest.mark.system, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

LISTEN = "import socket; s = socket.create_server(('', 4000)); print('ready', flush=True); c, _ = s.accept(); c.recv(9)"
SINK = (
    "import socket; s = socket.create_server(('', 4000)); print('ready', flush=True); c, _ = s.accept()\n"
    "n = 0\nwhile d := c.recv(1 << 16): n += len(d)\nprint(n)"
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Hosts]:
    with Hosts(["a", "b"], quotas={"b": 0.25}) as made:
        yield made


def python(program: str) -> list[str]:
    return [sys.executable, "-I", "-c", program]


def test_each_host_has_its_name_its_address_and_its_home(bed):
    for host in bed:
        assert host.ssh(["hostname"]).stdout.strip() == host.name
        assert host.address in host.ssh(["ip", "-brief", "address", "show", host.interface]).stdout
        host.ssh(["sh", "-c", f"echo {host.name} > mine"])
        assert (host.folder / "mine").read_text().strip() == host.name
        assert host.run(["cat", f"{HOME}/mine"]).stdout.strip() == host.name


def test_hosts_reach_each_other_by_name_with_their_keys_checked(bed):
    assert bed["a"].ssh(["ssh", "b", "hostname"]).stdout.strip() == "b"
    known = bed.folder / "known_hosts"
    whole = known.read_text()
    first, second = whole.splitlines()
    known.write_text(f"{bed['a'].address} {second.partition(' ')[2]}\n")
    refused = bed["a"].ssh(["hostname"], check=False)
    known.write_text(whole)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr
    assert first != second


def test_a_slow_link_is_slow_and_can_be_made_fast(bed):
    size = 2_000_000

    def send() -> float:
        with bed["b"].start(python(SINK), stdout=subprocess.PIPE) as sink:
            assert sink.stdout.readline() == "ready\n"
            started = time.monotonic()
            with socket.create_connection((bed["b"].address, 4000)) as connection:
                connection.sendall(bytes(size))
            assert int(sink.stdout.readline()) == size
            return time.monotonic() - started

    bed["b"].set_rate("16mbit")
    slow_s = send()
    bed["b"].set_rate(None)
    assert size * 8 / slow_s < 18e6
    assert send() < slow_s


def test_a_rate_that_is_none_is_refused(bed):
    with pytest.raises(ValueError, match="write it like 100mbit"):
        bed["a"].set_rate("fast")


def test_a_quota_holds_a_host_back(bed):
    spin = "import time; n = time.process_time\nwhile n() < 0.2: pass"
    bed["b"].ssh(python(spin))
    throttled = dict(line.split() for line in (CGROUPS / "cpu" / bed.name / "b" / "cpu.stat").read_text().splitlines())
    assert int(throttled["nr_throttled"]) > 0


def test_what_is_sent_over_a_cut_link_arrives_once_it_is_mended(bed):
    with bed["b"].start(python(SINK), stdout=subprocess.PIPE) as sink:
        assert sink.stdout.readline() == "ready\n"
        with socket.create_connection((bed["b"].address, 4000)) as connection:
            bed["b"].cut()
            connection.sendall(b"patience")
            time.sleep(0.5)
            assert sink.poll() is None
            bed["b"].mend()
        assert sink.stdout.readline() == "8\n"


def test_a_frozen_host_does_nothing_until_it_thaws(bed):
    tick = (
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\n"
        "while True: pathlib.Path('tick').write_text(str(time.monotonic())); time.sleep(0.01)"
    )
    with bed["a"].start(python(tick)):
        while not (bed["a"].folder / "tick").exists():
            time.sleep(0.01)
        bed["a"].freeze()
        before = (bed["a"].folder / "tick").read_text()
        time.sleep(0.3)
        assert (bed["a"].folder / "tick").read_text() == before
        bed["a"].thaw()
        while (bed["a"].folder / "tick").read_text() in ("", before):
            time.sleep(0.01)
        bed["a"].run(["kill", "-KILL", (bed["a"].folder / "pid").read_text()])


def test_a_killed_host_says_no_farewell_and_comes_back_empty(bed):
    (bed["b"].folder / "kept").write_text("yes")
    with bed["b"].start(python(LISTEN), stdout=subprocess.PIPE) as listening:
        assert listening.stdout.readline() == "ready\n"
        with socket.create_connection((bed["b"].address, 4000)) as connection:
            bed["b"].kill()
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(1)
    assert listening.returncode != 0
    bed["b"].revive()
    assert bed["b"].ssh(["cat", "kept"]).stdout == "yes"
    assert {Path(f"/proc/{number}/comm").read_text() for number in bed["b"].processes()} == {"sshd\n"}


def test_two_beds_can_stand_side_by_side(bed):
    with Hosts(["a"]) as other:
        assert other["a"].address != bed["a"].address
        assert other["a"].ssh(["hostname"]).stdout == "a\n"
        assert other["a"].folder != bed["a"].folder
    assert bed["a"].ssh(["hostname"]).stdout == "a\n"


def leftovers(name: str, folder: Path) -> list[str]:
    groups = [str(group) for controller in CONTROLLERS for group in (CGROUPS / controller).glob(name)]
    links = subprocess.check_output(["ip", "-brief", "link"], text=True)
    cable = name.replace("dragoman-bed-", "bed") + "@"
    return groups + [link for link in links.splitlines() if link.startswith(cable)] + [str(folder)] * folder.exists()


def test_an_exception_leaves_nothing_behind():
    with contextlib.suppress(KeyboardInterrupt), Hosts(["a"]) as bed:
        bed["a"].freeze()
        raise KeyboardInterrupt
    assert leftovers(bed.name, bed.folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_hosts_of_a_process_end_with_it(number):
    command = [sys.executable, "-m", "tests.system.hosts", "--hosts", "2", "--quotas", "b=0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as opened:
        config = Path(opened.stdout.readline().split()[-1])
        while "Ctrl-C" not in (line := opened.stdout.readline()):
            assert line
        inside = subprocess.check_output(["ssh", "-F", config, "b", "sleep 1000 >/dev/null 2>&1 & hostname"], text=True)
        assert inside == "b\n"
        opened.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        opened.wait(timeout=20)
    deadline = time.monotonic() + 20
    while (alive := _with_word(str(config.parent))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []
    assert config.exists() == (number == signal.SIGKILL)
    shutil.rmtree(config.parent, ignore_errors=True)  # Who is killed cannot tidy up.


def _with_word(word: str) -> list[str]:
    """Command lines of living processes that hold a word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if word in line and int(entry.name) != os.getpid():
                found.append(line)
    return found
