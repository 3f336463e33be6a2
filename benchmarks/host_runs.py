"""Runs on test hosts: started with `dragoman launch`, and read from the events of each worker.

The hosts are on this machine (`tests.system.hosts`): each has its own network namespace, address, sshd and CPU quota.
"""

import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.system.hosts import HOME, Hosts

from benchmarks.command_line import NO_EVALUATION, dragoman_command, make_parser
from benchmarks.corpora import prepare_demo
from benchmarks.reporting import Figure, print_figures
from dragoman.event_log import read_events
from dragoman.events import RunStarted, StepDone, WorldChanged
from dragoman.run_folder import RunFolder

EQUAL_SHARES = ("training.shares=equal", *NO_EVALUATION)
THREE_HOSTS = dict.fromkeys("abc", 0.45)
"""CPU quotas of three hosts on two cores; two of the hosts share a core."""
WARMUP_STEPS = 8
"""Steps before the measured ones."""
SLOWDOWN = 15
"""Step time with plain exchange on a slow link, relative to an unlimited one."""
LOG_TAIL_BYTES = 16_384
STEP_LIMIT_S = 300.0
"""Longest wait for steps that take seconds to a minute."""


def run_sections(benchmark: str, doc: str | None, sections: Mapping[str, Callable[[Path], Iterable[Figure]]]) -> None:
    """Run the sections that the command line names, all on the demo corpus, and print their figures."""
    names = make_parser(doc, sections).parse_args().only
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_demo(Path(folder) / "data", "tiny").path
        print_figures(benchmark, (figure for name in names for figure in sections[name](data)))


@dataclass
class HostRun:
    """A run, read from the events of its workers, each on its own host."""

    test_hosts: Hosts
    hosts: list[str]
    name: str
    process: "subprocess.Popen[str]"
    output: str = ""

    def folder(self, worker: int = 0) -> RunFolder:
        return RunFolder(self.test_hosts[self.hosts[worker].partition(":")[0]].folder / self.name)

    def steps(self, worker: int = 0) -> list[StepDone]:
        return [event for event in self.folder(worker).events(worker) if isinstance(event, StepDone)]

    def measured_steps(self) -> list[StepDone]:
        """Steps after the first few, which are slower."""
        return self.steps()[WARMUP_STEPS:]

    def last_step(self, worker: int = 0) -> int:
        """The newest step in a worker's log. Reads only the end of the log, because it is called often."""
        log = self.folder(worker).events_of(worker)
        if not log.exists():
            return 0
        events, _ = read_events(log, max(0, log.stat().st_size - LOG_TAIL_BYTES))
        return max((event.step for event in events if isinstance(event, StepDone)), default=0)

    def last_step_of_all(self) -> int:
        return max(self.last_step(worker) for worker in range(len(self.hosts)))

    def wait_for_step(self, step: int, worker: int = 0) -> None:
        """Wait until a worker has done a step. A run that ends or hangs instead ends the benchmark."""
        deadline_s = time.monotonic() + STEP_LIMIT_S
        while self.last_step(worker) < step:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"worker {worker} of {self.name} did not reach step {step}")
            time.sleep(0.02)

    def wait_for_all_hosts(self, worker: int = 0) -> None:
        """Wait until a worker has done a step in a world with all hosts."""
        while True:
            changes = [
                event for event in self.folder(worker).events(worker) if isinstance(event, RunStarted | WorldChanged)
            ]
            if changes and len(changes[-1].workers) == len(self.hosts):
                self.wait_for_step(self.last_step(worker) + 2, worker)
                return
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended before all its hosts took part")
            time.sleep(0.2)

    def tokens_per_s(self) -> float:
        """Median over the measured steps."""
        return median_tokens_per_s(self.measured_steps())

    def step_s(self) -> float:
        """Median over the measured steps."""
        return statistics.median(step.step_s for step in self.measured_steps())


def median_tokens_per_s(steps: Sequence[StepDone]) -> float:
    return statistics.median((step.source_tokens + step.target_tokens) / step.step_s for step in steps)


class HostLauncher:
    """Launches runs of the recipe `tiny` on test hosts."""

    def __init__(self, test_hosts: Hosts, data: Path) -> None:
        self._test_hosts = test_hosts
        self._data = data
        self._count = 0

    @contextmanager
    def start(self, hosts: str, *settings: str, options: Sequence[str] = (), resume: bool = False) -> Iterator[HostRun]:
        """Start a run, or resume the last one; stop it at the end if it is still running."""
        self._count += not resume
        out = f"{HOME}/run{self._count}"
        command = dragoman_command(
            "launch", "--hosts", hosts, "--ssh-config", self._test_hosts.ssh_config, *options, "--",
            "train", "tiny", "--data", self._data, "--out", out, *settings,
        )  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        run = HostRun(self._test_hosts, hosts.split(","), Path(out).name, process)
        try:
            yield run
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # SIGINT is ignored if a shell started the benchmark with `&`.
            run.output = process.communicate(timeout=120)[0]

    def run(self, hosts: str, *settings: str, options: Sequence[str] = ()) -> HostRun:
        """Run to the end."""
        with self.start(hosts, *settings, options=options) as run:
            run.process.wait()
        if run.process.returncode:
            raise SystemExit(f"a run on {hosts} failed:\n{run.output}")
        return run


def slow_down_links(test_hosts: Hosts, run: HostRun, slowdown: int = SLOWDOWN) -> str:
    """Limit all links so that steps like those of `run`, with plain exchange, become `slowdown` times as long.

    Returns the rate, such as `8300kbit`.
    """
    sent_bytes = statistics.median(step.sent_bytes for step in run.measured_steps())
    rate = f"{8e-3 * sent_bytes / ((slowdown - 1) * run.step_s()):.0f}kbit"
    for host in test_hosts:
        host.set_rate(rate)
    return rate
