"""Simulated hosts on one machine, each with its own address, name, home folder, sshd and CPU quota.

A host is a PID namespace with its own network namespace. A virtual switch connects the hosts and this machine by links
that can be slowed down or disconnected. All of it belongs to processes that end with this one, so that nothing is left.

    with Hosts(["a", "b"], rate="100mbit", quotas={"b": 0.33}) as hosts:
        hosts["a"].ssh(["ping", "-c1", "b"])
        hosts["b"].kill()

Hosts see the files of this machine, except for /srv, the home folder: there each host sees its own `folder`.
Requires root, Linux with cgroups of version 1 or 2, iproute2 and openssh-server.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HOME = "/srv"
NAME_PREFIX = "dragoman-hosts-"
INTERFACE = "eth0"
CGROUPS = Path("/sys/fs/cgroup")
QUOTA_PERIOD_US = 10_000
"""Short, so that a host runs slowly all the time: with a long period it would alternate between full speed and none."""
TIMEOUT_S = 20.0
PROGRAMS = (
    "ip", "tc", "taskset", "unshare", "nsenter", "mount", "ssh", "ssh-keygen", "/usr/sbin/sshd", "rsync", "pkill",
)  # fmt: skip


def missing_programs(*programs: str) -> list[str]:
    """Programs that are not installed on this machine. Searches /usr/sbin and /sbin too, where daemons are."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in programs if shutil.which(program, path=path) is None]


def missing_requirements() -> str | None:
    """Requirements of hosts that this machine does not meet, as the reason for skipping tests, or None."""
    if os.geteuid() != 0:
        return "hosts need root to create network and PID namespaces"
    missing = missing_programs(*PROGRAMS)
    if missing:
        return f"hosts need {', '.join(missing)}: .ci/system-packages lists the packages to install"
    if cgroup_roots("") == []:
        return f"hosts need cgroups with the controller cpu, at {CGROUPS}"
    return None


def cgroup_roots(group: str) -> list[Path]:
    """The cgroup of a group of hosts in each hierarchy: cpu and freezer in version 1, a single one in version 2."""
    first = [CGROUPS / controller for controller in ("cpu", "freezer")]
    if all((root / "tasks").exists() for root in first):
        return [root / group for root in first]
    controllers = CGROUPS / "cgroup.controllers"
    return [CGROUPS / group] if controllers.exists() and "cpu" in controllers.read_text().split() else []


class HostCgroups:
    """The cgroups of a host, which limit and freeze its processes."""

    def __init__(self, group: str, name: str) -> None:
        self._roots = cgroup_roots(group)
        self.paths = [root / name for root in self._roots]

    def create(self) -> None:
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
        if self._unified:  # Version 2 passes controllers on from each level to the next one.
            for level in (CGROUPS, self._roots[0]):
                (level / "cgroup.subtree_control").write_text("+cpu")

    def processes(self) -> list[int]:
        return [int(line) for line in (self.paths[0] / "cgroup.procs").read_text().split()]

    def set_quota(self, cores: float | None) -> None:
        """Limit all processes together to a number of cores; None removes the limit."""
        quota = None if cores is None else round(cores * QUOTA_PERIOD_US)
        if self._unified:
            (self.paths[0] / "cpu.max").write_text(f"{'max' if quota is None else quota} {QUOTA_PERIOD_US}")
        else:
            (self.paths[0] / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
            (self.paths[0] / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))

    def set_frozen(self, frozen: bool) -> None:
        """Suspend or resume all processes, and wait until they are."""
        if self._unified:
            (self.paths[0] / "cgroup.freeze").write_text(str(int(frozen)))
            events = self.paths[0] / "cgroup.events"
            _wait_until(
                lambda: f"frozen {int(frozen)}" in events.read_text(), f"{self.paths[0]} did not freeze or thaw"
            )
        else:
            state = self.paths[1] / "freezer.state"
            wanted = "FROZEN" if frozen else "THAWED"
            state.write_text(wanted)
            _wait_until(lambda: state.read_text().strip() == wanted, f"{self.paths[1]} did not become {wanted}")

    @property
    def _unified(self) -> bool:
        return len(self.paths) == 1


class Host:
    """A simulated machine: its processes see their own network, host name, home folder and process list."""

    def __init__(
        self, hosts: "Hosts", number: int, name: str, rate: str | None, cores: float | None, round_trip_s: float
    ) -> None:
        self.name = name
        self.address = f"{hosts.subnet}.{number}"
        self.interface = INTERFACE
        self.folder = hosts.folder / name
        """Mounted as the home folder `/srv` in this host only."""
        self.rate = rate
        self.cores = cores
        self.round_trip_s = round_trip_s
        self._hosts = hosts
        self._number = number
        self._port = f"port{number}"
        self._relay: subprocess.Popen[str] | None = None
        # A restarted host keeps its MAC address: peers use the old one until their ARP entries expire.
        self._mac_address = f"02:00:00:00:00:{number:02x}"
        self._cgroups = HostCgroups(hosts.name, name)
        self._unshare: subprocess.Popen[str] | None = None
        self._init_pid = 0

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in this host without using its network, and return its output."""
        options = {"capture_output": True, "text": True, "check": True, **options}
        return subprocess.run(
            self._command_inside(command), **{**options, "env": self._environment(options.get("env"))}
        )

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command as `run` does, without waiting for it to end."""
        options = {"text": True, **options}
        return subprocess.Popen(
            self._command_inside(command), **{**options, "env": self._environment(options.get("env"))}
        )

    def ssh(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in this host over ssh, and return its output."""
        options = {"capture_output": True, "text": True, "check": True, **options}
        return subprocess.run(["ssh", "-F", self._hosts.ssh_config, self.name, shlex.join(command)], **options)

    def processes(self) -> list[int]:
        """PIDs of the processes of this host, except its init process, in the PID namespace of this machine."""
        return [pid for pid in self._all_processes() if pid != self._init_pid]

    def find_processes(self, argument: str) -> list[int]:
        """PIDs of the processes of this host that have this argument in their command line."""
        pids = self.processes()
        return [pid for pid in pids if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]

    def disconnect(self) -> None:
        """Drop all packets on the link of this host. Neither side gets an error, as with an unplugged cable."""
        self._hosts.in_switch("ip", "link", "set", self._plug, "nomaster")

    def reconnect(self) -> None:
        """Undo `disconnect`."""
        self._hosts.in_switch("ip", "link", "set", self._plug, "master", "switch")

    def set_round_trip(self, round_trip_s: float) -> None:
        """Delay all packets of this host, so that a round trip to another host with the same delay takes this long.

        A packet between them passes two links, each of which has a quarter of the round trip in each direction.
        """
        self._remove_relay()
        self.round_trip_s = round_trip_s
        if round_trip_s:
            plug, wire = f"plug{self._number}", f"wire{self._number}"
            self._hosts.in_switch("ip", "link", "set", self._port, "nomaster")
            self._hosts.in_switch("ip", "link", "add", plug, "type", "veth", "peer", "name", wire)
            for interface in (plug, wire):
                self._hosts.in_switch("ip", "link", "set", interface, "up")
            relay = [sys.executable, "-I", str(Path(__file__).with_name("delayed_link.py"))]
            enter = ["nsenter", "--target", str(self._hosts.switch_pid), "--net"]
            self._relay = _start_namespace([*enter, *relay, self._port, wire, str(round_trip_s / 4)])
        self.reconnect()

    @property
    def _plug(self) -> str:
        """The interface that connects this host to the switch: that of its link, or of the relay that delays it."""
        return self._port if self._relay is None else f"plug{self._number}"

    def _remove_relay(self) -> None:
        if self._relay is not None:
            self._hosts.in_switch("ip", "link", "delete", f"plug{self._number}")
            _end_namespace(self._relay)
            self._relay = None

    def set_rate(self, rate: str | None) -> None:
        """Limit the link of this host in both directions to a rate such as `100mbit`; None removes the limit."""
        self.rate = rate
        for run, device in ((self._hosts.in_switch, self._port), (self._in_network, INTERFACE)):
            run("tc", "qdisc", "replace", "dev", device, "root", *(_token_bucket(rate) if rate else ("pfifo",)))

    def set_quota(self, cores: float | None) -> None:
        """Limit all processes of this host together to a number of cores; None removes the limit."""
        self.cores = cores
        self._cgroups.set_quota(cores)

    def freeze(self) -> None:
        """Suspend all processes of this host. It still answers pings, because the kernel does that."""
        self._cgroups.set_frozen(True)

    def thaw(self) -> None:
        """Resume all processes after `freeze`."""
        self._cgroups.set_frozen(False)

    def kill(self) -> None:
        """Kill this host like a power failure: the link is deleted first, so that its peers see no connection close."""
        if self._unshare is None:
            return
        self._hosts.in_switch("ip", "link", "delete", self._port)
        self._remove_relay()
        self._unshare.kill()  # --kill-child: the kernel then kills the init process, and with it all others.
        self._unshare.wait()
        self.thaw()
        self._unshare.communicate()
        self._unshare = None
        _wait_until(lambda: not self._all_processes(), f"some processes of {self.name} did not end")

    def restart(self) -> None:
        """Start this host, also again after `kill`: with the same address and files, but none of its processes."""
        self._cgroups.create()
        self.set_quota(self.cores)
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = [sys.executable, "-I", __file__, "--boot", str(self._hosts.folder), self.name]
        boot += map(str, self._cgroups.paths)
        self._unshare = _start_namespace([*self._taskset(), *unshare, *boot], env=self._environment(None))
        self._init_pid = int(Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text())
        self._hosts.in_switch(
            "ip", "link", "add", self._port, "type", "veth",
            "peer", "name", INTERFACE, "address", self._mac_address, "netns", str(self._init_pid),
        )  # fmt: skip
        self._in_network("ip", "address", "add", f"{self.address}/24", "dev", INTERFACE)
        self._in_network("ip", "link", "set", INTERFACE, "up")
        self._in_network("ip", "route", "add", "default", "via", self._hosts.address)
        self._hosts.in_switch("ip", "link", "set", self._port, "up")
        self.set_round_trip(self.round_trip_s)
        self.set_rate(self.rate)
        _wait_until(self._accepts_ssh, f"{self.name} does not accept ssh connections at {self.address}")

    def _all_processes(self) -> list[int]:
        return self._cgroups.processes()

    def _accepts_ssh(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1):
            return True
        return False

    def _in_network(self, *command: str) -> None:
        _run("nsenter", "--target", str(self._init_pid), "--net", *command)

    def _command_inside(self, command: Sequence[str]) -> list[str]:
        join = 'until [ "$1" = -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'
        enter = ["nsenter", "--target", str(self._init_pid), "--mount", "--uts", "--ipc", "--net", "--pid"]
        start = ["sh", "-c", f'cd {HOME} && exec "$@"', "sh", *command]
        return ["sh", "-c", join, "sh", *map(str, self._cgroups.paths), "--", *self._taskset(), *enter, *start]

    def _taskset(self) -> list[str]:
        """Command prefix that pins a host with at most one core to one CPU, where more threads only slow it down."""
        if self.cores is None or self.cores > 1:
            return []
        available = sorted(os.sched_getaffinity(0))
        return ["taskset", "--cpu-list", str(available[(self._number - 1) % len(available)])]

    @staticmethod
    def _environment(variables: Mapping[str, str] | None) -> dict[str, str]:
        return {**(os.environ if variables is None else variables), "HOME": HOME}


class Hosts:
    """Simulated hosts by name. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        names: Sequence[str],
        rate: str | None = None,
        quotas: Mapping[str, float] | None = None,
        round_trip_s: float = 0.0,
    ) -> None:
        if (reason := missing_requirements()) is not None:
            raise RuntimeError(reason)
        self._cleanup = ExitStack()
        try:
            self._create(names, rate, quotas or {}, round_trip_s)
        except BaseException:
            self.close()
            raise

    def _create(self, names: Sequence[str], rate: str | None, quotas: Mapping[str, float], round_trip_s: float) -> None:
        number = self._reserve_number()
        self.name = f"{NAME_PREFIX}{number}"
        # 198.18.0.0/15 is reserved for benchmarks of networks: no real network uses it.
        self.subnet = f"198.{18 + number // 256}.{number % 256}"
        self.address = f"{self.subnet}.254"
        """Address of this machine on the network of the hosts."""
        self._remove_cgroups()  # Left by a killed process that had the same number.
        self._cleanup.callback(self._remove_cgroups)
        self.folder = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix=NAME_PREFIX)))
        self.ssh_config = self.folder / "ssh_config"
        self.ssh_key = self.folder / "key"
        self._create_switch(f"hosts{number}")
        self._hosts = {
            name: Host(self, index, name, rate, quotas.get(name), round_trip_s)
            for index, name in enumerate(names, start=1)
        }
        self._write_files()
        for host in self:
            self._cleanup.callback(host.kill)
            host.restart()

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __len__(self) -> int:
        return len(self._hosts)

    def close(self) -> None:
        """Kill all hosts, and remove their namespaces, cgroups, links and folders."""
        self._cleanup.close()

    @property
    def switch_pid(self) -> int:
        return self._switch.pid

    def in_switch(self, *command: str) -> None:
        """Run a command in the network namespace of the switch."""
        _run("nsenter", "--target", str(self.switch_pid), "--net", *command)

    def _reserve_number(self) -> int:
        """Number that no other `Hosts` on this machine has. The kernel releases it when this process ends."""
        for number in range(512):
            reservation = socket.socket(socket.AF_UNIX)
            try:
                reservation.bind(f"\0{NAME_PREFIX}{number}")
            except OSError:
                reservation.close()
                continue
            self._cleanup.callback(reservation.close)
            return number
        raise RuntimeError("512 groups of hosts exist already: close some")

    def _create_switch(self, interface: str) -> None:
        """Create the switch, and a link from this machine to it with this interface name."""
        self._switch = _start_namespace(["unshare", "--net", "sh", "-c", "echo ready; read -r _ || exit 0"])
        self._cleanup.callback(_end_namespace, self._switch)
        self.in_switch("ip", "link", "add", "switch", "type", "bridge")
        self.in_switch("ip", "link", "set", "switch", "up")
        _run("ip", "link", "add", interface, "type", "veth", "peer", "name", "port0", "netns", str(self._switch.pid))
        self._cleanup.callback(_run, "ip", "link", "delete", interface)
        _run("ip", "address", "add", f"{self.address}/24", "dev", interface)
        _run("ip", "link", "set", interface, "up")
        self.in_switch("ip", "link", "set", "port0", "master", "switch", "up")

    def _write_files(self) -> None:
        """Write the host names, the ssh keys, and the configuration of ssh clients and servers."""
        self.folder.chmod(0o755)
        names = "".join(f"{host.address} {host.name}\n" for host in self)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        # Without DNS: hosts reach no name server, so that lookups would wait for a timeout.
        (self.folder / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
        passwd = Path("/etc/passwd").read_text()
        (self.folder / "passwd").write_text(re.sub(r"(?m)^(root:.*:)[^:]*:[^:]*$", rf"\g<1>{HOME}:/bin/bash", passwd))
        _make_key(self.ssh_key)
        entries = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in self)
        self.ssh_config.write_text(
            f"{entries}Host *\n  User root\n  IdentityFile {self.ssh_key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile none\n"
            "  StrictHostKeyChecking yes\n"
        )
        known_hosts = []
        for host in self:
            (host.folder / ".ssh").mkdir(parents=True)
            shutil.copy(self.ssh_config, host.folder / ".ssh" / "config")
            key = self.folder / f"{host.name}.key"
            _make_key(key)
            known_hosts.append(f"{host.address} {key.with_suffix('.key.pub').read_text()}")
            (self.folder / f"{host.name}.sshd").write_text(
                f"HostKey {key}\nAuthorizedKeysFile {self.ssh_key}.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
                f"MaxStartups 100\nPermitRootLogin yes\nSetEnv {_session_environment()}\n"
            )
        (self.folder / "known_hosts").write_text("".join(known_hosts))

    def _remove_cgroups(self) -> None:
        cgroups = [cgroup for root in cgroup_roots(self.name) if root.exists() for cgroup in (*root.glob("*/"), root)]
        for cgroup in cgroups:
            _kill_processes(cgroup)
        for cgroup in cgroups:
            _wait_until(lambda cgroup=cgroup: _try_to_remove(cgroup), f"{cgroup} is still in use")


def _session_environment() -> str:
    """Environment of ssh sessions: the Python of this process first in PATH, and its PYTHONPATH."""
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    variables |= {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}
    return " ".join(f'"{name}={value}"' for name, value in variables.items())


def _token_bucket(rate: str) -> tuple[str, ...]:
    """Arguments of tc for a token bucket of 10 ms: smaller than what a run sends, large enough for the kernel timer."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", rate)
    if match is None:
        raise ValueError(f"{rate} is not a valid rate: write it like 100mbit, 2.5gbit or 800kbit")
    bits = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]
    burst_bytes = max(64 * 1024, round(bits / 8 / 100))
    return "tbf", "rate", rate, "burst", str(burst_bytes), "latency", "50ms"


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {result.stderr.strip()}")


def _make_key(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))


def _start_namespace(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start `unshare` and wait for its `ready`. It ends when its input closes: with this process, at the latest."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{shlex.join(command)} did not start")
    return process


def _end_namespace(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=TIMEOUT_S)


def _wait_until(condition: Any, error: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(error)
        time.sleep(0.01)


def _kill_processes(cgroup: Path) -> None:
    for pid in (cgroup / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    for file, thawed in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (cgroup / file).exists():
            (cgroup / file).write_text(thawed)


def _try_to_remove(cgroup: Path) -> bool:
    with contextlib.suppress(OSError):
        cgroup.rmdir()
        return True
    return False


def _boot(folder: Path, name: str, cgroups: Sequence[str]) -> None:
    """Init process of a host: mount its files, start sshd, and end the host when standard input closes."""
    for cgroup in cgroups:
        Path(cgroup, "cgroup.procs").write_text("0")
    socket.sethostname(name)
    _run("mount", "--bind", str(folder / name), HOME)
    for file in ("hosts", "passwd", "nsswitch.conf"):
        _run("mount", "--bind", str(folder / file), f"/etc/{file}")
    for mount_point in ("/run", "/dev/shm"):
        _run("mount", "-t", "tmpfs", "tmpfs", mount_point)
    _run("mount", "-t", "sysfs", "sysfs", "/sys")  # sysfs lists the interfaces of one network namespace.
    _run("ip", "link", "set", "lo", "up")
    Path("/run/sshd").mkdir()
    os.chdir(HOME)
    log = str(folder / f"{name}.log")
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(folder / f"{name}.sshd"), "-E", log], stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel then reaps orphaned processes.
    print("ready", flush=True)
    sys.stdin.read()


def main() -> None:
    """Create simulated hosts, print how to connect to them, and remove them on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.hosts", description=main.__doc__)
    parser.add_argument("--hosts", type=int, default=2, help="number of hosts; their names are a, b, c ...")
    parser.add_argument("--rate", help="rate of each link, such as 100mbit (default: unlimited)")
    parser.add_argument("--round-trip-ms", type=float, default=0.0, help="round trip between hosts (default: none)")
    parser.add_argument("--quotas", help="CPU quotas of some hosts in cores, such as b=0.33,c=1", default="")
    arguments = parser.parse_args()
    names = [chr(ord("a") + index) for index in range(arguments.hosts)]
    quotas = {
        name: float(cores) for name, _, cores in (pair.partition("=") for pair in arguments.quotas.split(",") if pair)
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Hosts(names, arguments.rate, quotas, arguments.round_trip_ms / 1000) as hosts,
    ):
        print(f"ssh config: {hosts.ssh_config}\naddress of this machine: {hosts.address}\n")
        for host in hosts:
            print(f"{host.name}  {host.address}  home folder {host.folder}, mounted as {HOME}")
            print(f"   ssh -F {hosts.ssh_config} {host.name}")
        print("\nCtrl-C removes the hosts.", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--boot"]:
        _boot(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        main()
