"""Several hosts: slow links, unequal hosts, lost hosts, scaling. Figures are ratios from one run, or recovery times.

The hosts are test hosts on this machine (see `benchmarks.host_runs`), started with `dragoman launch` as a user would.
Needs root and two idle cores; takes about 35 minutes.

    python -m benchmarks.multi_host [--only slow-link unequal recovery folders restart kills host-kills elastic scaling]
"""

import math
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path

import psutil
from tests.system.hosts import Host, Hosts

from benchmarks.command_line import NEVER, NO_EVALUATION
from benchmarks.host_runs import (
    SLOWDOWN,
    THREE_HOSTS,
    HostLauncher,
    HostRun,
    median_tokens_per_s,
    run_sections,
    slow_down_links,
)
from benchmarks.reporting import Figure
from benchmarks.run_judges import judge_steps, planned_batches, steps_until_followed
from dragoman.corpus.dataset import DataSet
from dragoman.events import EvaluationDone, ExchangeChosen, RunStarted, SharesChanged
from dragoman.insight.run_progress import describe_progress
from dragoman.recipe import resolve

TWO_HOSTS = {"a": 1.0, "b": 1.0}
UNTIL_STOPPED = (f"training.steps={NEVER}", *NO_EVALUATION, "checkpoint.every=50")
LARGE_BATCH = ("batch.tokens=6000",)
"""Steps of about a second on one core, as in real training."""
VERY_LARGE_BATCH = ("batch.tokens=18000",)
"""Steps of seconds: the constant cost of a pass through a small model is then small in comparison."""
OUTAGE_S = 20
"""Duration of a frozen host and of a cut link."""
DISTURBED_S = 300
KILL_EVERY_S = 20
RESTARTS = 7
"""Kills of a worker whose return is timed."""
SLOW_CORES = 0.33
"""Quota of the slower host of an unequal pair; the other has one core."""


def main() -> None:
    run_sections(
        "multi_host",
        __doc__,
        {
            "slow-link": measure_slow_link,
            "unequal": measure_unequal,
            "recovery": measure_recovery,
            "folders": measure_folders,
            "restart": measure_restart,
            "kills": measure_kills,
            "host-kills": measure_host_kills,
            "elastic": measure_elastic_cost,
            "scaling": measure_scaling,
        },
    )


def measure_slow_link(data: Path) -> Iterator[Figure]:
    """Two hosts on an unlimited link, and with `auto` on a link that makes plain exchange fifteen times slower."""
    with Hosts(["a", "b"], quotas=TWO_HOSTS) as hosts:
        launcher = HostLauncher(hosts, data)
        settings = (
            *LARGE_BATCH, "training.steps=300", "training.shares=equal", "evaluation.every=300", "checkpoint.every=300",
        )  # fmt: skip
        plain = ("exchange.method=plain", *settings)
        unlimited = launcher.run("a,b", *plain)
        rate = slow_down_links(hosts, unlimited)
        slow = launcher.run("a,b", *plain, *NO_EVALUATION, "training.steps=10")
        auto = launcher.run("a,b", *settings)
        slowdown = statistics.median(step.step_s for step in slow.steps()[3:]) / unlimited.step_s()
        ratio = _duration_s(auto) / _duration_s(unlimited)
        (auto_loss, auto_bleu), (plain_loss, plain_bleu) = (_last_evaluation(run) for run in (auto, unlimited))
        choice = next(event for event in auto.folder().events() if isinstance(event, ExchangeChosen))
    name = f"slow link ({rate})"
    yield Figure(f"{name}: plain against unlimited, step time", f"{slowdown:.1f} x", f"{SLOWDOWN} x", slowdown)
    method = f"{choice.method}, every {choice.every}, {choice.wire_format}"
    yield Figure(f"{name}: auto against unlimited, training time", f"{ratio:.2f} x ({method})", "1.15 x", ratio)
    loss = auto_loss / plain_loss - 1
    text = f"{100 * loss:+.1f} % ({auto_loss:.3f}, {plain_loss:.3f})"
    yield Figure(f"{name}: validation loss of auto against synchronous training", text, "1 %", loss)
    text = f"{auto_bleu - plain_bleu:+.1f} ({auto_bleu:.1f}, {plain_bleu:.1f})"
    yield Figure(f"{name}: BLEU of auto against synchronous training", text, "0.5", auto_bleu - plain_bleu)


def measure_unequal(data: Path) -> Iterator[Figure]:
    """One core and a third of one, alone and together; and a host that becomes slower during a run."""
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": SLOW_CORES}) as hosts:
        launcher = HostLauncher(hosts, data)
        alone = [
            launcher.run(host, *VERY_LARGE_BATCH, *NO_EVALUATION, f"training.steps={steps}").tokens_per_s()
            for host, steps in (("a", 22), ("b", 14))
        ]
        together = launcher.run("a,b", *VERY_LARGE_BATCH, *NO_EVALUATION, "training.steps=50")
        ratio = median_tokens_per_s([step for step in together.steps() if step.step > 25]) / sum(alone)
        yield Figure("unequal pair: throughput against the sum of both alone", f"{100 * ratio:.0f} %", "95 %", ratio)
        hosts["b"].set_quota(1.0)
        with launcher.start("a,b", *LARGE_BATCH, *UNTIL_STOPPED) as run:
            run.wait_for_step(25)
            hosts["b"].set_quota(SLOW_CORES)
            slowed_at = run.last_step()
            run.wait_for_step(slowed_at + 40)
        changes = [event for event in run.folder().events() if isinstance(event, SharesChanged)]
    deserved = SLOW_CORES / (1 + SLOW_CORES)
    steps, final = steps_until_followed(changes, slowed_at, rank=1, deserved=deserved)
    share = "unchanged" if final is None else f"{final:.0%}"
    text = f"{'never' if steps is None else steps} (share {share}, {deserved:.0%} by speed)"
    yield Figure("a host slows to a third: steps until shares followed", text, "20", steps)


def measure_recovery(data: Path) -> Iterator[Figure]:
    """Each kind of failure: time to the survivors' next step; and steps lost or repeated over the whole run."""
    with Hosts(["a", "b", "c"]) as hosts:
        launcher = HostLauncher(hosts, data)
        a, c = hosts["a"], hosts["c"]
        # Name, failure, repair, and seconds between them.
        failures: list[tuple[str, Callable[[], None], Callable[[], None], int]] = [
            ("kill -9 of a worker", lambda: _kill(c, "train"), lambda: None, 5),
            ("loss of a host", c.kill, c.restart, 5),
            (f"a host frozen for {OUTAGE_S} s", c.freeze, c.thaw, OUTAGE_S),
            (f"a link cut for {OUTAGE_S} s", c.disconnect, c.reconnect, OUTAGE_S),
            ("loss of the first host, with the lighthouse in use", a.kill, a.restart, 5),
            ("loss of the lighthouse alone", lambda: _kill(a, "dragoman.launch.lighthouse"), lambda: None, 5),
        ]
        with launcher.start("a,b,c", *UNTIL_STOPPED, options=["--elastic"]) as run:
            run.wait_for_step(10, worker=1)
            for name, fail, repair, outage_s in failures:
                run.wait_for_all_hosts(worker=1)
                started_at = time.monotonic()
                fail()
                run.wait_for_step(run.last_step(1) + 2, worker=1)
                recovery_s = time.monotonic() - started_at
                yield Figure(f"{name}: survivors' next step", f"{recovery_s:.1f} s", "6 s", recovery_s)
                time.sleep(outage_s)
                repair()
                run.wait_for_step(run.last_step(1) + 60, worker=1)
            for host in hosts:
                host.kill()
            reached = run.last_step(1)
            for host in hosts:
                host.restart()
            run.process.kill()
        with launcher.start("a,b,c", *UNTIL_STOPPED, options=["--elastic"], resume=True) as run:
            run.wait_for_step(reached + 10, worker=1)
        starts = [event for event in run.folder(1).events(1) if isinstance(event, RunStarted)]
        repeated = reached - starts[-1].resumed_step
        yield Figure("all hosts lost, run launched again: steps to repeat", str(repeated), "50", repeated)
        yield _check_steps(run, data)


def measure_folders(data: Path) -> Iterator[Figure]:
    """Lose the first host for good in the middle of a run, and compare what the folders of the others show of it."""
    steps, every = 60, 5
    with Hosts(["a", "b", "c"]) as hosts:
        settings = (f"training.steps={steps}", f"evaluation.every={every}", "evaluation.sentences=20")
        with HostLauncher(hosts, data).start("a,b,c", *settings, options=["--elastic"]) as run:
            run.wait_for_step(steps // 2, worker=1)
            hosts["a"].kill()
            run.process.wait()
        shown = [describe_progress(run.folder(worker).path) for worker in (1, 2)]
    facts = ("started", "ended", "step", "elapsed_s", "workers", "lost", "evaluations")
    different = [fact for fact in facts if shown[0][fact] != shown[1][fact]]
    evaluations, lost = ([len(each[fact]) for each in shown] for fact in ("evaluations", "lost"))
    durations = [f"{each['elapsed_s']:.3f} s" for each in shown]
    text = (
        f"{', '.join(map(str, evaluations))} of {steps // every}; {', '.join(durations)}; {', '.join(map(str, lost))}; "
        f"{', '.join(str(each['ended']) for each in shown)}"
    )
    name = "first host lost for good, as shown by the other two: evaluations; duration; losses; end"
    yield Figure(name, text, "the same, complete", [evaluations, different])


def measure_restart(data: Path) -> Iterator[Figure]:
    """Kill a worker several times: seconds, and seconds of a core, until it is in the world again."""
    back_s, cpu_s = [], []
    with (
        Hosts(["a", "b", "c"], quotas=THREE_HOSTS) as hosts,
        HostLauncher(hosts, data).start("a,b,c", *UNTIL_STOPPED, options=["--elastic"]) as run,
    ):
        for _ in range(RESTARTS):
            run.wait_for_all_hosts(worker=2)
            killed_at_s = time.time()
            _kill(hosts["c"], "train")
            while not (starts := [at_s for at_s in _starts(run, worker=2) if at_s > killed_at_s]):
                time.sleep(0.02)
            [worker] = hosts["c"].find_processes("train")
            times = psutil.Process(worker).cpu_times()
            back_s.append(starts[0] - killed_at_s)
            cpu_s.append(times.user + times.system)
    name = "kill -9 of a worker, 0.45 of a core: until it is in the world again"
    yield Figure(name, _median_and_range(back_s), "3 s", statistics.median(back_s))
    yield Figure("its CPU time until then", _median_and_range(cpu_s), "", statistics.median(cpu_s))


def measure_kills(data: Path) -> Iterator[Figure]:
    """Kill the worker of a random host every 20 seconds for five minutes."""
    yield from _measure_losses(data, "kills of workers", lambda host: _kill(host, "train"), lambda _: None)


def measure_host_kills(data: Path) -> Iterator[Figure]:
    """Kill a random host every 20 seconds for five minutes, and restart it after two seconds."""
    yield from _measure_losses(data, "losses of hosts", Host.kill, Host.restart)


def _measure_losses(
    data: Path, name: str, lose: Callable[[Host], None], repair: Callable[[Host], None]
) -> Iterator[Figure]:
    """Lose and repair something of a random host every 20 seconds, between two quiet periods of the same run."""
    rng, losses = random.Random(1), list[tuple[int, float]]()

    def disturb() -> None:
        for _ in range(DISTURBED_S // KILL_EVERY_S):
            time.sleep(KILL_EVERY_S / 2)
            worker, victim = rng.choice(list(enumerate(hosts)))
            losses.append((worker, time.time()))
            lose(victim)
            time.sleep(2)
            repair(victim)
            time.sleep(KILL_EVERY_S / 2 - 2)

    # With quotas, because the hosts share two cores: without, the survivors of a lost host would become faster.
    with Hosts(["a", "b", "c"], quotas=THREE_HOSTS) as hosts:
        launcher = HostLauncher(hosts, data)
        with launcher.start("a,b,c", *UNTIL_STOPPED, options=["--elastic"]) as run:
            run.wait_for_step(10)
            before = _Period.watch(run, lambda: time.sleep(DISTURBED_S / 2))
            disturbed = _Period.watch(run, disturb)
            run.wait_for_all_hosts()
            after = _Period.watch(run, lambda: time.sleep(DISTURBED_S / 2))
        back_s = _back_s(run, losses)
        check = _check_steps(run, data)
    quiet = _Period(before.seconds + after.seconds, before.steps + after.steps, before.host_s + after.host_s)
    goodput = disturbed.steps / disturbed.seconds / (quiet.steps / quiet.seconds)
    presence = disturbed.host_s / disturbed.seconds / (quiet.host_s / quiet.seconds)
    title = f"five minutes of random {name}"
    yield Figure(f"{title}: goodput against undisturbed", f"{100 * goodput:.0f} %", "90 %", goodput)
    per_host = goodput / presence
    yield Figure(f"{title}: goodput against the hosts that took part in steps", f"{100 * per_host:.0f} %", "", per_host)
    text = f"{_median_and_range(back_s)}, {len(back_s)} of {len(losses)}"
    name = f"{title}: until the lost worker is in the world again"
    yield Figure(name, text, "3 s", statistics.median(back_s))
    yield check


def measure_elastic_cost(data: Path) -> Iterator[Figure]:
    """The same steps in a static and in an elastic world, alternating."""
    ratios = []
    settings = (*NO_EVALUATION, "training.steps=100", "training.shares=equal")
    with Hosts(["a", "b"], quotas=TWO_HOSTS) as hosts:
        launcher = HostLauncher(hosts, data)
        for _ in range(3):
            static, elastic = (launcher.run("a,b", *settings, options=options) for options in ([], ["--elastic"]))
            ratios.append(static.tokens_per_s() / elastic.tokens_per_s())
    cost = statistics.median(ratios) - 1
    yield Figure("elastic against static, without failures: slowdown", f"{100 * cost:.1f} %", "3 %", cost)


def measure_scaling(data: Path) -> Iterator[Figure]:
    """Two hosts of one core each against one, with the same global batch."""
    ratios = []
    settings = (*LARGE_BATCH, *NO_EVALUATION, "training.steps=30", "training.shares=equal")
    with Hosts(["a", "b"], quotas=TWO_HOSTS) as hosts:
        launcher = HostLauncher(hosts, data)
        for _ in range(3):
            one, two = (launcher.run(names, *settings) for names in ("a", "a,b"))
            ratios.append(two.tokens_per_s() / one.tokens_per_s())
    ratio = statistics.median(ratios)
    yield Figure("two hosts against one, unlimited link: throughput", f"{ratio:.2f} x", "1.85 x", ratio)


def _kill(host: Host, word: str) -> None:
    """Kill the processes of a host with this word in their command lines."""
    for pid in host.find_processes(word):
        os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class _Period:
    """A part of a run."""

    seconds: float
    steps: int
    host_s: float
    """Seconds in steps, summed over the hosts that took part in them."""

    @classmethod
    def watch(cls, run: HostRun, action: Callable[[], None]) -> "_Period":
        """The period that an action takes."""
        started_at_s, first_step = time.time(), run.last_step_of_all()
        action()
        ended_at_s, last_step = time.time(), run.last_step_of_all()
        steps = [step for worker in range(len(run.hosts)) for step in run.steps(worker)]
        host_s = sum(step.step_s for step in steps if started_at_s < step.at_s < ended_at_s)
        return cls(ended_at_s - started_at_s, last_step - first_step, host_s)


def _starts(run: HostRun, worker: int) -> list[float]:
    """When a worker entered the world, in each of its lives."""
    return [event.at_s for event in run.folder(worker).events(worker) if isinstance(event, RunStarted)]


def _median_and_range(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f} s)"


def _back_s(run: HostRun, losses: Sequence[tuple[int, float]]) -> list[float]:
    """Seconds from each loss until the worker was in the world again, if it was before it was lost once more."""
    found = []
    for worker in range(len(run.hosts)):
        lost_at_s = [at_s for lost, at_s in losses if lost == worker]
        starts = _starts(run, worker)
        for at_s, next_loss_at_s in pairwise([*lost_at_s, math.inf]):
            found += [start - at_s for start in starts if at_s < start < next_loss_at_s][:1]
    return found


def _check_steps(run: HostRun, data: Path) -> Figure:
    """Compare the steps of all workers with the plan of the data set."""
    batch = resolve("tiny").settings.batch
    reached = run.last_step_of_all()
    plan = planned_batches(DataSet(data).pairs("train").lengths(), batch.tokens, batch.seed)
    done = [step for worker in range(len(run.hosts)) for step in run.steps(worker)]
    faults = asdict(judge_steps(done, list(islice(plan, reached))))
    name = "steps lost; steps with another batch than planned; pairs lost; pairs repeated"
    text = f"{'; '.join(map(str, faults.values()))} in {reached} steps"
    return Figure(name, text, "0; 0; 0; 0", faults)


def _duration_s(run: HostRun) -> float:
    """From the end of the first step to the end of the last one."""
    steps = run.steps()
    return steps[-1].at_s - steps[0].at_s


def _last_evaluation(run: HostRun) -> tuple[float, float]:
    last = [event for event in run.folder().events() if isinstance(event, EvaluationDone)][-1]
    assert last.bleu is not None, "the run computed no BLEU"
    return last.nll, last.bleu


if __name__ == "__main__":
    main()
