"""Links that make plain exchange 200 times slower: training time with `auto` against an unlimited link.

Test hosts on this machine, as in `benchmarks.multi_host`: two and four of them, without delay and with a round trip of
100 ms; and two whose link has half of that rate and the whole of it by turns. Runs on unlimited and on slow links
alternate. Needs root and two idle cores; takes about 20 minutes.

    python -m benchmarks.hidden_link [--only 2-hosts 4-hosts varying]
"""

import itertools
import statistics
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.system.hosts import Hosts

from benchmarks.command_line import NO_EVALUATION
from benchmarks.host_runs import WARMUP_STEPS, HostLauncher, HostRun, run_sections, slow_down_links
from benchmarks.reporting import Figure
from dragoman.events import ExchangeChosen

SLOWDOWN_OF_PLAIN = 200
ROUND_TRIPS_S = (0.0, 0.1)
# An average of checkpoints would be sent to all hosts at the end, in full precision.
SETTINGS = ("training.shares=equal", "training.steps=120", "checkpoint.average=0", *NO_EVALUATION)
PLAIN_SETTINGS = ("exchange.method=plain", *SETTINGS)
VARYING_STEPS, TURN_S = 800, 40.0


def main() -> None:
    run_sections("hidden_link", __doc__, {"2-hosts": measure_two, "4-hosts": measure_four, "varying": measure_varying})


def measure_two(data: Path) -> Iterator[Figure]:
    yield from measure(data, {"a": 1.0, "b": 1.0})


def measure_four(data: Path) -> Iterator[Figure]:
    yield from measure(data, dict.fromkeys("abcd", 0.45))


def measure_varying(data: Path) -> Iterator[Figure]:
    """A link whose rate changes several times while a run reviews its choice each minute."""
    with Hosts(["a", "b"], quotas={"a": 1.0, "b": 1.0}) as hosts:
        launcher = HostLauncher(hosts, data)
        unlimited = [launcher.run("a,b", *PLAIN_SETTINGS)]
        rate = slow_down_links(hosts, unlimited[0], SLOWDOWN_OF_PLAIN)
        with varying_rate(hosts, rate):
            auto = launcher.run("a,b", *SETTINGS, f"training.steps={VARYING_STEPS}")
        for host in hosts:
            host.set_rate(None)
        unlimited.append(launcher.run("a,b", *PLAIN_SETTINGS))
        choices = [event for event in auto.folder().events() if isinstance(event, ExchangeChosen)]
        ratio = mean_step_s(auto) / statistics.median(map(mean_step_s, unlimited))
        used = "; then ".join(f"every {choice.every}, {choice.wire_format}" for choice in choices)
        name = f"2 hosts, {rate} and half of it by turns of {TURN_S:.0f} s: auto against unlimited, training time"
        yield Figure(name, f"{ratio:.2f} x ({used})", "", {"ratio": ratio, "choices": used})


@contextmanager
def varying_rate(hosts: Hosts, rate: str) -> Iterator[None]:
    """Change the rate of all links every `TURN_S` seconds."""
    ended = threading.Event()
    half = f"{int(rate.removesuffix('kbit')) / 2:.0f}kbit"

    def vary() -> None:
        for present in itertools.cycle((half, rate)):
            for host in hosts:
                host.set_rate(present)
            if ended.wait(TURN_S):
                return

    thread = threading.Thread(target=vary)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measure(data: Path, quotas: Mapping[str, float]) -> Iterator[Figure]:
    """Alternate unlimited and slow links, and measure plain exchange on the slow one over a few steps."""
    names = ",".join(quotas)
    with Hosts(list(quotas), quotas=quotas) as hosts:
        launcher = HostLauncher(hosts, data)
        unlimited = [launcher.run(names, *PLAIN_SETTINGS)]
        rate = slow_down_links(hosts, unlimited[0], SLOWDOWN_OF_PLAIN)
        slow = launcher.run(names, *PLAIN_SETTINGS, "training.steps=3")
        autos = []
        for round_trip_s in ROUND_TRIPS_S:
            for host in hosts:
                host.set_rate(rate)
                host.set_round_trip(round_trip_s)
            autos.append(launcher.run(names, *SETTINGS))
            for host in hosts:
                host.set_rate(None)
                host.set_round_trip(0)
            unlimited.append(launcher.run(names, *PLAIN_SETTINGS))
        unlimited_s = statistics.median(map(mean_step_s, unlimited))
        slowdown = statistics.median(step.step_s for step in slow.steps()[1:]) / unlimited_s
        name = f"{len(quotas)} hosts, {rate}"
        yield Figure(
            f"{name}: plain against unlimited, step time", f"{slowdown:.0f} x", f"{SLOWDOWN_OF_PLAIN} x", slowdown
        )
        for round_trip_s, auto in zip(ROUND_TRIPS_S, autos, strict=True):
            ratio = mean_step_s(auto) / unlimited_s
            choice = next(event for event in auto.folder().events() if isinstance(event, ExchangeChosen))
            method = f"{choice.method}, every {choice.every}, {choice.wire_format}"
            delay = f", round trip {1000 * round_trip_s:.0f} ms" if round_trip_s else ""
            text = f"{ratio:.2f} x ({method})"
            value = {"ratio": ratio, "reason": choice.reason}
            yield Figure(f"{name}{delay}: auto against unlimited, training time", text, "1.10 x", value)


def mean_step_s(run: HostRun) -> float:
    """From the end of the first steps to the end of the last but one: at the last, all weights are synchronised."""
    ends = [step.at_s for step in run.steps()]
    return (ends[-2] - ends[WARMUP_STEPS]) / (len(ends) - 2 - WARMUP_STEPS)


if __name__ == "__main__":
    main()
