"""Hosts on one machine: each has its own address, name, home folder, sshd and share of the processor, and can be lost.

A host is a process namespace with a network of its own. A virtual switch joins the hosts, and this machine, by links
that can be slowed down or cut. All of it hangs on processes that end when this one does, so that nothing stays behind.

    with Hosts(["a", "b"], rate="100mbit", quotas={"b": 0.33}) as bed:
        bed["a"].ssh(["ping", "-c1", "b"])
        bed["b"].kill()

Hosts see the files of this machine, but for /srv, the home folder: there each sees its own `folder`.
Needs root, Linux with cgroups of version 1, iproute2 and openssh-server.
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
INTERFACE = "eth0"
CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "freezer")
QUOTA_PERIOD_US = 10_000
"""Short, as a slow processor is slow at every moment: in longer ones a host would run and stand still by turns."""
PATIENCE_S = 20.0
PROGRAMS = (
    "ip", "tc", "taskset", "unshare", "nsenter", "mount", "ssh", "ssh-keygen", "/usr/sbin/sshd", "rsync", "pkill",
)  # fmt: skip


def missing_programs(*programs: str) -> list[str]:
    """Programs that this machine lacks. Daemons may lie where only root looks."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return [program for program in programs if shutil.which(program, path=path) is None]


def why_not() -> str | None:
    """Why hosts cannot be made here, if so."""
    if os.geteuid() != 0:
        return "hosts need root: network and process namespaces are made"
    missing = missing_programs(*PROGRAMS)
    if missing:
        return f"hosts need {', '.join(missing)}: install what .ci/system-packages installs"
    absent = [str(CGROUPS / controller) for controller in CONTROLLERS if not (CGROUPS / controller / "tasks").exists()]
    if absent:
        return f"hosts need cgroups of version 1: there is no {' and no '.join(absent)}"
    return None


class Host:
    """A machine of its own, as far as its processes can tell."""

    def __init__(self, bed: "Hosts", number: int, name: str, rate: str | None, cores: float | None) -> None:
        self.name = name
        self.address = f"{bed.subnet}.{number}"
        self.interface = INTERFACE
        self.folder = bed.folder / name
        """What this host alone sees as its home, `/srv`."""
        self.rate = rate
        self.cores = cores
        self._bed = bed
        self._number = number
        self._port = f"port{number}"
        # A host that comes back keeps its hardware address, or its peers would talk to the old one for a while.
        self._hardware_address = f"02:00:00:00:00:{number:02x}"
        self._groups = [CGROUPS / controller / bed.name / name for controller in CONTROLLERS]
        self._holder: subprocess.Popen[str] | None = None
        self._init = 0

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in this host, past its network, and give what it wrote."""
        options = {"capture_output": True, "text": True, "check": True, **options}
        return subprocess.run(self._inside(command), **{**options, "env": self._environment(options.get("env"))})

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """The same, without waiting for its end."""
        options = {"text": True, **options}
        return subprocess.Popen(self._inside(command), **{**options, "env": self._environment(options.get("env"))})

    def ssh(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command in this host through ssh, and give what it wrote."""
        options = {"capture_output": True, "text": True, "check": True, **options}
        return subprocess.run(["ssh", "-F", self._bed.ssh_config, self.name, shlex.join(command)], **options)

    def processes(self) -> list[int]:
        """The processes of this host but its first, as this machine numbers them."""
        return [number for number in self._all_processes() if number != self._init]

    def find(self, word: str) -> list[int]:
        """The processes of this host that have a word in their command lines."""
        wanted = word.encode()
        return [n for n in self.processes() if wanted in Path(f"/proc/{n}/cmdline").read_bytes().split(b"\0")]

    def cut(self) -> None:
        """Let nothing through its link any more. Nobody is told."""
        self._bed.in_switch("ip", "link", "set", self._port, "nomaster")

    def mend(self) -> None:
        """Let everything through again."""
        self._bed.in_switch("ip", "link", "set", self._port, "master", "switch")

    def set_rate(self, rate: str | None) -> None:
        """Slow its link down, both ways, to a rate such as `100mbit`; None is as fast as this machine can."""
        self.rate = rate
        for run, device in ((self._bed.in_switch, self._port), (self._in_network, INTERFACE)):
            run("tc", "qdisc", "replace", "dev", device, "root", *(_shape(rate) if rate else ("pfifo",)))

    def set_quota(self, cores: float | None) -> None:
        """Limit its processes to a number of cores, all together; None is no limit."""
        self.cores = cores
        (self._groups[0] / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
        quota = -1 if cores is None else round(cores * QUOTA_PERIOD_US)
        (self._groups[0] / "cpu.cfs_quota_us").write_text(str(quota))

    def freeze(self) -> None:
        """Stop all its processes where they are. Its kernel, as it were, still answers to pings."""
        self._set_freezer("FROZEN")

    def thaw(self) -> None:
        """Let them go on."""
        self._set_freezer("THAWED")

    def kill(self) -> None:
        """End it as a power cut would: its link goes first, so that nobody gets a word of farewell."""
        if self._holder is None:
            return
        self._bed.in_switch("ip", "link", "delete", self._port)
        self._holder.kill()  # The kernel ends the first process of a host with its holder, and all others with that.
        self._holder.wait()
        self.thaw()
        self._holder.communicate()
        self._holder = None
        _wait_until(lambda: not self._all_processes(), f"some processes of {self.name} do not end")

    def revive(self) -> None:
        """Start it again, with its address, its files, and none of its processes."""
        for group in self._groups:
            group.mkdir(parents=True, exist_ok=True)
        self.set_quota(self.cores)
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = [sys.executable, "-I", __file__, "--boot", str(self._bed.folder), self.name, *map(str, self._groups)]
        self._holder = _hold([*self._pin(), *unshare, *boot], env=self._environment(None))
        self._init = int(Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text())
        self._bed.in_switch(
            "ip", "link", "add", self._port, "type", "veth",
            "peer", "name", INTERFACE, "address", self._hardware_address, "netns", str(self._init),
        )  # fmt: skip
        self._in_network("ip", "address", "add", f"{self.address}/24", "dev", INTERFACE)
        self._in_network("ip", "link", "set", INTERFACE, "up")
        self._in_network("ip", "route", "add", "default", "via", self._bed.address)
        self._bed.in_switch("ip", "link", "set", self._port, "up")
        self.mend()
        self.set_rate(self.rate)
        _wait_until(self._answers, f"{self.name} does not answer at {self.address}")

    def _all_processes(self) -> list[int]:
        return [int(line) for line in (self._groups[0] / "cgroup.procs").read_text().split()]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1):
            return True
        return False

    def _set_freezer(self, state: str) -> None:
        freezer = self._groups[1] / "freezer.state"
        freezer.write_text(state)
        _wait_until(lambda: freezer.read_text().strip() == state, f"{self.name} is not {state.lower()}")

    def _in_network(self, *command: str) -> None:
        _run("nsenter", "--target", str(self._init), "--net", *command)

    def _inside(self, command: Sequence[str]) -> list[str]:
        join = 'for group in "$1" "$2"; do echo $$ > "$group/cgroup.procs"; done; shift 2; exec "$@"'
        enter = ["nsenter", "--target", str(self._init), "--mount", "--uts", "--ipc", "--net", "--pid"]
        start = ["sh", "-c", f'cd {HOME} && exec "$@"', "sh", *command]
        return ["sh", "-c", join, "sh", *map(str, self._groups), *self._pin(), *enter, *start]

    def _pin(self) -> list[str]:
        """A host of at most one core sees one: with more threads than that, they would wait for each other."""
        if self.cores is None or self.cores > 1:
            return []
        available = sorted(os.sched_getaffinity(0))
        return ["taskset", "--cpu-list", str(available[(self._number - 1) % len(available)])]

    @staticmethod
    def _environment(given: Mapping[str, str] | None) -> dict[str, str]:
        return {**(os.environ if given is None else given), "HOME": HOME}


class Hosts:
    """A test bed: hosts by their names. Give it to `with`, or call `close` in the end."""

    def __init__(
        self, names: Sequence[str], rate: str | None = None, quotas: Mapping[str, float] | None = None
    ) -> None:
        if (reason := why_not()) is not None:
            raise RuntimeError(reason)
        self._undo = ExitStack()
        try:
            self._make(names, rate, quotas or {})
        except BaseException:
            self.close()
            raise

    def _make(self, names: Sequence[str], rate: str | None, quotas: Mapping[str, float]) -> None:
        number = self._claim_number()
        self.name = f"dragoman-bed-{number}"
        # 198.18.0.0/15 is set aside for measurements between hosts: no real network has it.
        self.subnet = f"198.{18 + number // 256}.{number % 256}"
        self.address = f"{self.subnet}.254"
        """This machine's address, as hosts see it."""
        self._remove_groups()  # Whoever had this number before is dead.
        self._undo.callback(self._remove_groups)
        self.folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="dragoman-bed-")))
        self.ssh_config = self.folder / "ssh_config"
        self.ssh_key = self.folder / "key"
        self._plug_in(f"bed{number}")
        self._hosts = {
            name: Host(self, index, name, rate, quotas.get(name)) for index, name in enumerate(names, start=1)
        }
        self._write_files()
        for host in self:
            self._undo.callback(host.kill)
            host.revive()

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
        """End all hosts and remove what they were made of."""
        self._undo.close()

    def in_switch(self, *command: str) -> None:
        """Run a command in the network of the switch."""
        _run("nsenter", "--target", str(self._switch.pid), "--net", *command)

    def _claim_number(self) -> int:
        """A number that no other bed of this machine has. The kernel frees it when this process dies."""
        for number in range(512):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0dragoman-bed-{number}")
            except OSError:
                claim.close()
                continue
            self._undo.callback(claim.close)
            return number
        raise RuntimeError("there are 512 beds of hosts already: close some")

    def _plug_in(self, cable: str) -> None:
        """Make the switch, and a link from this machine to it."""
        self._switch = _hold(["unshare", "--net", "sh", "-c", "echo ready; read -r _ || exit 0"])
        self._undo.callback(_let_go, self._switch)
        self.in_switch("ip", "link", "add", "switch", "type", "bridge")
        self.in_switch("ip", "link", "set", "switch", "up")
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "port0", "netns", str(self._switch.pid))
        self._undo.callback(_run, "ip", "link", "delete", cable)
        _run("ip", "address", "add", f"{self.address}/24", "dev", cable)
        _run("ip", "link", "set", cable, "up")
        self.in_switch("ip", "link", "set", "port0", "master", "switch", "up")

    def _write_files(self) -> None:
        """What hosts and their users need: names, keys, and the settings of ssh at both ends."""
        self.folder.chmod(0o755)
        names = "".join(f"{host.address} {host.name}\n" for host in self)
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        # No name server can be reached from here: asking one would only take long.
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
        known = []
        for host in self:
            (host.folder / ".ssh").mkdir(parents=True)
            shutil.copy(self.ssh_config, host.folder / ".ssh" / "config")
            key = self.folder / f"{host.name}.key"
            _make_key(key)
            known.append(f"{host.address} {key.with_suffix('.key.pub').read_text()}")
            (self.folder / f"{host.name}.sshd").write_text(
                f"HostKey {key}\nAuthorizedKeysFile {self.ssh_key}.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
                f"MaxStartups 100\nPermitRootLogin yes\nSetEnv {_session_environment()}\n"
            )
        (self.folder / "known_hosts").write_text("".join(known))

    def _remove_groups(self) -> None:
        roots = [CGROUPS / controller / self.name for controller in CONTROLLERS]
        groups = [group for root in roots if root.exists() for group in (*root.glob("*/"), root)]
        for group in groups:
            _end_processes(group)
        for group in groups:
            _wait_until(lambda group=group: _removed(group), f"{group} is still in use")


def _session_environment() -> str:
    """What sessions of ssh are given: the Python of this process, and where it looks for this project."""
    settings = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    settings |= {name: os.environ[name] for name in ("PYTHONPATH", "OMP_NUM_THREADS") if name in os.environ}
    return " ".join(f'"{name}={value}"' for name, value in settings.items())


def _shape(rate: str) -> tuple[str, ...]:
    """A token bucket of 10 ms: small against what a run sends, large enough for the timer of the kernel."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", rate)
    if match is None:
        raise ValueError(f"{rate} is no rate: write it like 100mbit, 2.5gbit or 800kbit")
    bits = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]
    burst_bytes = max(64 * 1024, round(bits / 8 / 100))
    return "tbf", "rate", rate, "burst", str(burst_bytes), "latency", "50ms"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")


def _make_key(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))


def _hold(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start a process that says when it is ready, and ends when this one does: then its input ends."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{shlex.join(command)} did not start")
    return process


def _let_go(process: "subprocess.Popen[str]") -> None:
    process.communicate(timeout=PATIENCE_S)


def _wait_until(condition: Any, problem: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(problem)
        time.sleep(0.01)


def _end_processes(group: Path) -> None:
    for number in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    if (group / "freezer.state").exists():
        (group / "freezer.state").write_text("THAWED")


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
        return True
    return False


def _boot(folder: Path, name: str, groups: Sequence[str]) -> None:
    """What the first process of a host does: furnish it, start sshd, and end it all when its input ends."""
    for group in groups:
        Path(group, "cgroup.procs").write_text("0")
    socket.sethostname(name)
    _run("mount", "--bind", str(folder / name), HOME)
    for file in ("hosts", "passwd", "nsswitch.conf"):
        _run("mount", "--bind", str(folder / file), f"/etc/{file}")
    for place in ("/run", "/dev/shm"):
        _run("mount", "-t", "tmpfs", "tmpfs", place)
    _run("mount", "-t", "sysfs", "sysfs", "/sys")  # Its list of interfaces belongs to a network.
    _run("ip", "link", "set", "lo", "up")
    Path("/run/sshd").mkdir()
    os.chdir(HOME)
    log = str(folder / f"{name}.log")
    subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(folder / f"{name}.sshd"), "-E", log], stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel buries orphans.
    print("ready", flush=True)
    sys.stdin.read()


def main() -> None:
    """Open a test bed, say how to use it, and take it down on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.hosts", description=main.__doc__)
    parser.add_argument("--hosts", type=int, default=2, help="how many; they are called a, b, c ...")
    parser.add_argument("--rate", help="of each link, such as 100mbit; as fast as it goes without")
    parser.add_argument("--quotas", help="cores of some hosts, such as b=0.33,c=1", default="")
    wanted = parser.parse_args()
    names = [chr(ord("a") + index) for index in range(wanted.hosts)]
    quotas = {
        name: float(cores) for name, _, cores in (pair.partition("=") for pair in wanted.quotas.split(",") if pair)
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), Hosts(names, wanted.rate, quotas) as bed:
        print(f"ssh config: {bed.ssh_config}\nthis machine is {bed.address}\n")
        for host in bed:
            print(f"{host.name}  {host.address}  home {host.folder}, which it sees as {HOME}")
            print(f"   ssh -F {bed.ssh_config} {host.name}")
        print("\nCtrl-C takes all of it down.", flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--boot"]:
        _boot(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        main()
