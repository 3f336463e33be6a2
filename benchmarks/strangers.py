"""Strangers on the network: messages without the secret to every open port of a run, and the ports that are open.

The hosts are test hosts on this machine (see `benchmarks.host_runs`), and this machine is the stranger: it can reach
all their addresses, and has recorded messages to replay. Needs root; takes about ten minutes.

    python -m benchmarks.strangers [--only static elastic one-machine]
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.system.hosts import Hosts
from tests.system.stranger import Recording, attack, open_ports

from benchmarks.command_line import NEVER, NO_EVALUATION, dragoman_command
from benchmarks.host_runs import THREE_HOSTS, HostLauncher, run_sections
from benchmarks.reporting import Figure
from dragoman.events import MessagesRejected, RunEnded, StepDone, WorkersLost

MESSAGES = 10_000
"""For each port: random, truncated, replayed and well-formed ones in turn."""


def main() -> None:
    run_sections(
        "strangers",
        __doc__,
        {"static": measure_static, "elastic": measure_elastic, "one-machine": measure_one_machine},
    )


def measure_static(data: Path) -> Iterator[Figure]:
    return _measure_attack(data, "static", ())


def measure_elastic(data: Path) -> Iterator[Figure]:
    return _measure_attack(data, "elastic", ("--elastic",))


def _measure_attack(data: Path, world: str, options: Sequence[str]) -> Iterator[Figure]:
    """Attack all ports of a run on three hosts, one after the other, and look at its events."""
    with Hosts(list(THREE_HOSTS), quotas=THREE_HOSTS) as hosts:
        recordings = [Recording(host) for host in hosts]
        launcher = HostLauncher(hosts, data)
        settings = (*NO_EVALUATION, f"training.steps={NEVER}", "exchange.method=plain")
        with launcher.start("a,b,c", *settings, options=options) as run:
            run.wait_for_step(20)
            recorded = {
                protocol: [message for recording in recordings for message in recording.messages(protocol)]
                for protocol in ("tcp", "udp")
            }
            ports = [port for host in hosts for port in open_ports(host)]
            began = run.last_step()
            for port in ports:
                attack(port, recorded[port.protocol], MESSAGES)
            ended = run.last_step()
            run.wait_for_step(ended + 10)
        for recording in recordings:
            recording.close()
        events = [event for worker in range(3) for event in run.folder(worker).events(worker)]
        taken = [event.step for event in run.folder().events(0) if isinstance(event, StepDone)]
        lost = sum(isinstance(event, WorkersLost) for event in events)
        stopped = [event.reason for event in events if isinstance(event, RunEnded)]
        rejected = sum(event.count for event in events if isinstance(event, MessagesRejected))
        notices = run.output.count("at the lighthouse's port")
    name = f"{world} world, {MESSAGES:,} messages to each of {len(ports)} open ports, steps {began} to {ended}"
    replayed = sum(map(len, recorded.values()))
    missing = len(set(range(1, taken[-1] + 1)) - set(taken))
    outcome = (
        f"trains until it is stopped, {missing} steps missing, {len(taken) - len(set(taken))} repeated, {lost} losses"
    )
    good = set(stopped) == {"interrupted"} and taken == list(range(1, len(taken) + 1)) and not lost
    yield Figure(f"{name}: outcome", outcome if good else f"{outcome}; ended: {stopped}", "0, 0, 0", good)
    reports = sum(isinstance(event, MessagesRejected) for event in events)
    yield Figure(
        f"{world} world: reported ({replayed} recorded messages were replayed)",
        f"{rejected:,} in {reports} events, {notices} notices of lighthouses",
        "all, once in a while",
        rejected,
    )


def measure_one_machine(data: Path) -> Iterator[Figure]:
    """Ports that other machines can reach while two workers of one machine train."""
    with Hosts(["a"]) as hosts:
        command = dragoman_command(
            "train", "tiny", "--data", data, "--out", "/srv/run", "--workers", "2", *NO_EVALUATION, "training.steps=60"
        )
        process = hosts["a"].start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seen = set()
        while process.poll() is None:
            seen |= set(open_ports(hosts["a"]))
    yield Figure("one machine, two workers: ports reachable from outside", str(len(seen)), "0", len(seen))


if __name__ == "__main__":
    main()
