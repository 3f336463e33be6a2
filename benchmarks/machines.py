"""Several machines: slow links, unequal and lost machines. Each line is a ratio from one run, or a time to recover.

Real hosts on one machine (`tests.system.hosts`): a network namespace, an address, an sshd and a processor quota each,
started by `dragoman launch` as a user would. Needs root, and two cores that nobody else uses; takes about 25 minutes.

    python -m benchmarks.machines [--only link unequal recovery kills elastic scaling]
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.system.hosts import HOME, Host, Hosts

from dragoman.event_log import read_events
from dragoman.events import EvaluationDone, ExchangeChosen, RunStarted, SharesChanged, StepDone, WorldChanged
from dragoman.run_folder import RunFolder

SLOWER = 15
"""How much slower than on an unlimited link a plain exchange is to be on the slow one."""
ENDLESS = ("training.steps=1000000", "evaluation.every=1000000", "checkpoint.every=50", "evaluation.bleu=false")
SHORT = ("evaluation.every=1000000", "checkpoint.every=1000000", "evaluation.bleu=false")
BUSY = ("batch.tokens=6000",)
"""Steps of about a second on one core, as training on machines of some size has them."""
HEAVY = ("batch.tokens=18000",)
"""Steps of seconds: what going through a small model takes however few the tokens would weigh too much else."""
THIRDS = dict.fromkeys("abc", 0.45)
"""Quotas of three hosts on two cores, two of which share one."""
WARM_STEPS = 8
TAIL_BYTES = 16_384


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    figure: str
    target: str
    measured: str
    value: float


class Runs:
    """Launches runs of the demo's corpus on a bed of hosts, and reads what happened."""

    def __init__(self, bed: Hosts, data: Path) -> None:
        self.bed = bed
        self._data = data
        self._count = 0

    @contextmanager
    def started(self, hosts: str, *words: str, options: Sequence[str] = (), goes_on: bool = False) -> Iterator["Run"]:
        """A run under way, which is stopped in the end if it has not ended by itself. `goes_on`: the last one again."""
        self._count += not goes_on
        out = f"{HOME}/run{self._count}"
        command = [
            sys.executable, "-m", "dragoman", "launch", "--hosts", hosts, "--ssh-config", str(self.bed.ssh_config),
            *options, "--", "train", "tiny", "--data", str(self._data), "--out", out, *words,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        run = Run(self.bed, hosts.split(","), Path(out).name, process)
        try:
            yield run
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            run.output = process.communicate(timeout=120)[0]

    def finished(self, hosts: str, *words: str, options: Sequence[str] = ()) -> "Run":
        with self.started(hosts, *words, options=options) as run:
            run.process.wait()
        if run.process.returncode:
            raise SystemExit(f"a run on {hosts} failed:\n{run.output}")
        return run


@dataclass
class Run:
    """A run as its events tell it, each worker's on its own host."""

    bed: Hosts
    hosts: list[str]
    name: str
    process: "subprocess.Popen[str]"
    output: str = ""

    def folder(self, worker: int = 0) -> RunFolder:
        return RunFolder(self.bed[self.hosts[worker].partition(":")[0]].folder / self.name)

    def steps(self, worker: int = 0) -> list[StepDone]:
        return [event for event in self.folder(worker).events(worker) if isinstance(event, StepDone)]

    def last_step(self, worker: int = 0) -> int:
        """The newest step in a worker's log, of which only the end is read: it is asked for often."""
        log = self.folder(worker).events_of(worker)
        if not log.exists():
            return 0
        events, _ = read_events(log, max(0, log.stat().st_size - TAIL_BYTES))
        return max((event.step for event in events if isinstance(event, StepDone)), default=0)

    def wait_for(self, step: int, worker: int = 0) -> None:
        while self.last_step(worker) < step and self.process.poll() is None:
            time.sleep(0.02)

    def wait_for_all(self, worker: int = 0) -> None:
        """Until a worker has taken a step in a world that no host is missing from."""
        while self.process.poll() is None:
            changes = [
                event for event in self.folder(worker).events(worker) if isinstance(event, RunStarted | WorldChanged)
            ]
            if changes and len(changes[-1].workers) == len(self.hosts):
                self.wait_for(self.last_step(worker) + 2, worker)
                return
            time.sleep(0.2)

    def tokens_per_s(self, worker: int = 0) -> float:
        """Of the steps after the first few, by the median."""
        steps = self.steps(worker)[WARM_STEPS:]
        return statistics.median((step.source_tokens + step.target_tokens) / step.step_s for step in steps)


def main() -> None:
    measure(
        str(__doc__),
        {
            "link": measure_slow_link,
            "unequal": measure_unequal,
            "recovery": measure_recovery,
            "kills": measure_kills,
            "elastic": measure_elastic_cost,
            "scaling": measure_scaling,
        },
    )


def measure(about: str, measurements: Mapping[str, Callable[[Path], Iterable[Line]]]) -> None:
    """Make those measurements that the command line names, all on the demo's corpus: rows of a table, then JSON."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(measurements), default=list(measurements))
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        subprocess.run(
            [sys.executable, "-m", "dragoman", "prepare", "demo", "--recipe", "tiny", "--out", str(data)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for name in options.only:
            for line in measurements[name](data):
                lines.append(line)
                print(f"| {line.figure} | {line.measured} | {line.target} |", flush=True)
    print(json.dumps({line.figure: line.value for line in lines}))


def measure_slow_link(data: Path) -> list[Line]:
    """The demo in larger batches over two hosts: at full speed, and with `auto` where plain is fifteen times slower."""
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": 1.0}) as bed:
        runs = Runs(bed, data)
        alike = (*BUSY, "training.steps=300", "training.shares=equal", "evaluation.every=300", "checkpoint.every=300")
        plain = ("exchange.method=plain", *alike)
        usual = runs.finished("a,b", *plain)
        step_s = statistics.median(step.step_s for step in usual.steps()[WARM_STEPS:])
        sent_bytes = statistics.median(step.sent_bytes for step in usual.steps()[WARM_STEPS:])
        rate = f"{8e-3 * sent_bytes / ((SLOWER - 1) * step_s):.0f}kbit"
        for host in bed:
            host.set_rate(rate)
        slow = runs.finished("a,b", *plain, *SHORT, "training.steps=10")
        slowdown = statistics.median(step.step_s for step in slow.steps()[3:]) / step_s
        chosen = runs.finished("a,b", *alike)
        ratio = _span(chosen) / _span(usual)
        (loss_auto, bleu_auto), (loss_plain, bleu_plain) = (_last_evaluation(run) for run in (chosen, usual))
        choice = next(event for event in chosen.folder().events() if isinstance(event, ExchangeChosen))
    how = f"{choice.method}, every {choice.every}, {choice.wire_format}"
    return [
        Line(f"slow link ({rate}): plain against unlimited", "15 x", f"{slowdown:.1f} x", slowdown),
        Line("slow link: auto against unlimited, same tokens", "1.15 x", f"{ratio:.2f} x ({how})", ratio),
        Line(
            "slow link: validation loss against synchronous", "1 %",
            f"{100 * (loss_auto / loss_plain - 1):+.1f} % ({loss_auto:.3f}, {loss_plain:.3f})",
            loss_auto / loss_plain - 1,
        ),
        Line(
            "slow link: BLEU against synchronous", "0.5",
            f"{bleu_auto - bleu_plain:+.1f} ({bleu_auto:.1f}, {bleu_plain:.1f})", bleu_auto - bleu_plain,
        ),
    ]  # fmt: skip


def measure_unequal(data: Path) -> list[Line]:
    """One core whole and one at a third, alone and together; and a host that slows down in the middle."""
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": 0.33}) as bed:
        runs = Runs(bed, data)
        alone = [
            runs.finished(host, *HEAVY, *SHORT, f"training.steps={steps}") for host, steps in (("a", 22), ("b", 14))
        ]
        together = runs.finished("a,b", *HEAVY, *SHORT, "training.steps=50")
        apart = sum(run.tokens_per_s() for run in alone)
        joined = [step for step in together.steps() if step.step > 25]
        rate = statistics.median((step.source_tokens + step.target_tokens) / step.step_s for step in joined)
        bed["b"].set_quota(1.0)
        with runs.started("a,b", *BUSY, *ENDLESS) as run:
            run.wait_for(25)
            bed["b"].set_quota(0.33)
            slowed_at = run.last_step()
            run.wait_for(slowed_at + 40)
        changes = [e for e in run.folder().events() if isinstance(e, SharesChanged) and e.step > slowed_at]
        final = changes[-1].shares[1] if changes else 0.5
        followed = next((e.step - slowed_at for e in changes if abs(e.shares[1] - final) < 0.1 * final), 0)
    return [
        Line(
            "unequal pair: throughput against the sum of both alone", "95 %", f"{100 * rate / apart:.0f} %",
            rate / apart,
        ),
        Line(
            f"a machine slows to a third: steps until shares followed (to {100 * final:.0f} %)", "20", str(followed),
            followed,
        ),
    ]  # fmt: skip


def measure_recovery(data: Path) -> list[Line]:
    """Each kind of loss: how long until the survivors' next step, and whether anything was lost or repeated."""
    lines = []
    with Hosts(["a", "b", "c"]) as bed:
        runs = Runs(bed, data)
        with runs.started("a,b,c", *ENDLESS, options=["--elastic"]) as run:
            run.wait_for(10, worker=1)
            losses: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
                ("kill -9 of a worker", lambda: kill(bed["c"], "train"), lambda: None),
                ("loss of a host", bed["c"].kill, bed["c"].revive),
                ("a host frozen for 20 s", bed["c"].freeze, bed["c"].thaw),
                ("a link cut for 20 s", bed["c"].cut, bed["c"].mend),
                ("loss of the first host, with the lighthouse in use", bed["a"].kill, bed["a"].revive),
                ("loss of the lighthouse alone", lambda: kill(bed["a"], "dragoman.launch.lighthouse"), lambda: None),
            ]
            for name, lose, mend in losses:
                run.wait_for_all(worker=1)
                started = time.monotonic()
                lose()
                reached = run.last_step(1)
                run.wait_for(reached + 2, worker=1)
                spent_s = time.monotonic() - started
                lines.append(Line(f"{name}: survivors' next step", "6 s", f"{spent_s:.1f} s", spent_s))
                time.sleep(20 if "20 s" in name else 5)
                mend()
                run.wait_for(run.last_step(1) + 60, worker=1)
            for host in bed:
                host.kill()
            reached = run.last_step(1)
            for host in bed:
                host.revive()
            run.process.kill()
        with runs.started("a,b,c", *ENDLESS, options=["--elastic"], goes_on=True) as run:
            run.wait_for(reached + 10, worker=1)
        restarts = [event for event in run.folder(1).events(1) if isinstance(event, RunStarted)]
        again = reached - restarts[-1].resumed_step
        lines.append(Line("all hosts lost, launched again: steps to do again (of 50 at most)", "50", str(again), again))
        lines.append(_lineage(run, run.last_step(1)))
    return lines


def measure_kills(data: Path) -> list[Line]:
    """Hosts die at random every 20 seconds for five minutes, and come back."""
    chance = random.Random(1)
    steps, present = [], []
    # Without quotas the survivors would compute faster, because hosts share two cores.
    with Hosts(["a", "b", "c"], quotas=THIRDS) as bed:
        runs = Runs(bed, data)
        for disturbed in (False, True):
            with runs.started("a,b,c", *ENDLESS, options=["--elastic"]) as run:
                run.wait_for(10)
                began, first = time.monotonic(), _reached(run)
                while time.monotonic() - began < 300:
                    time.sleep(10)
                    victim = chance.choice(list(bed))
                    if disturbed:
                        victim.kill()
                    time.sleep(2)
                    if disturbed:
                        victim.revive()
                    time.sleep(8)
                steps.append((_reached(run) - first) / (time.monotonic() - began))
            present.append(_presence(run))
        lines = [_lineage(run, _reached(run))]
    goodput, there = steps[1] / steps[0], present[1] / present[0]
    return [
        Line("five minutes of random kills: goodput against undisturbed", "90 %", f"{100 * goodput:.0f} %", goodput),
        Line("the same against the hosts that took part in steps", "", f"{100 * goodput / there:.0f} %", there),
        *lines,
    ]


def measure_elastic_cost(data: Path) -> list[Line]:
    """The same steps in a static and in an elastic world, by turns."""
    ratios = []
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": 1.0}) as bed:
        runs = Runs(bed, data)
        for _ in range(3):
            static, elastic = (
                runs.finished("a,b", *SHORT, "training.steps=100", "training.shares=equal", options=options)
                for options in ([], ["--elastic"])
            )
            ratios.append(static.tokens_per_s() / elastic.tokens_per_s())
    cost = statistics.median(ratios) - 1
    return [Line("elastic engine when nothing fails, against static", "3 %", f"{100 * cost:.1f} %", cost)]


def measure_scaling(data: Path) -> list[Line]:
    """Two hosts of one core against one, with the same global batch."""
    ratios = []
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": 1.0}) as bed:
        runs = Runs(bed, data)
        for _ in range(3):
            one, two = (
                runs.finished(hosts, *BUSY, *SHORT, "training.steps=30", "training.shares=equal")
                for hosts in ("a", "a,b")
            )
            ratios.append(two.tokens_per_s() / one.tokens_per_s())
    ratio = statistics.median(ratios)
    return [Line("two hosts on an unlimited link against one", "1.85 x", f"{ratio:.2f} x", ratio)]


def kill(host: Host, word: str) -> None:
    """Kill the processes of a host with this word in their command lines."""
    for number in host.find(word):
        os.kill(number, signal.SIGKILL)


def _reached(run: Run) -> int:
    return max(run.last_step(worker) for worker in range(len(run.hosts)))


def _presence(run: Run) -> float:
    """Hosts that took part in steps, on average over time."""
    steps = [run.steps(worker) for worker in range(len(run.hosts))]
    ends = [step.at_s for each in steps for step in each]
    return sum(step.step_s for each in steps for step in each) / (max(ends) - min(ends))


def _lineage(run: Run, reached: int) -> Line:
    """Whether the steps of all workers together are each step once, with the batches of the plan in their order."""
    positions: dict[int, set[tuple[int, int]]] = {}
    for worker in range(len(run.hosts)):
        for step in run.steps(worker):
            positions.setdefault(step.step, set()).add((step.epoch, step.batch))
    missing = [step for step in range(1, reached + 1) if step not in positions]
    # A step that was taken again, because its result died with its only holders, must be of the same batch.
    ambiguous = [step for step, found in positions.items() if len(found) > 1]
    ordered = [next(iter(positions[step])) for step in sorted(positions)]
    disordered = sum(1 for before, after in pairwise(ordered) if after <= before)
    wrong = len(missing) + len(ambiguous) + disordered
    return Line(
        f"steps lost, pairs lost, pairs repeated, over {reached} steps", "0, 0, 0",
        f"{len(missing)}, {disordered}, {len(ambiguous)}", wrong,
    )  # fmt: skip


def _span(run: Run) -> float:
    """From the end of the first step to that of the last."""
    steps = run.steps()
    return steps[-1].at_s - steps[0].at_s


def _last_evaluation(run: Run) -> tuple[float, float]:
    done = [event for event in run.folder().events() if isinstance(event, EvaluationDone)]
    return done[-1].nll, done[-1].bleu or 0.0


if __name__ == "__main__":
    main()
