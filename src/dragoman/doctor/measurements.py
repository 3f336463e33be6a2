"""What machines and the links between them can do, measured by their agents."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations

from dragoman.launch.agent import dragoman_version
from dragoman.launch.agents import Agents, HostLostError
from dragoman.launch.launch_request import home_folder
from dragoman.launch.link_probe import LinkSpeed
from dragoman.launch.network_interfaces import Address
from dragoman.launch.preflight import HostsError, Problem, clock_offsets, compare_versions, meet
from dragoman.launch.ssh import Client, Machine

Pair = tuple[str, str]
"""A host that sends, and one that receives."""


@dataclass(frozen=True)
class BenchmarkRequest:
    """What machines are tried with."""

    recipe: str
    overrides: Sequence[str]
    lengths: Sequence[tuple[int, int]] = ()
    """Source and target tokens of some pairs; without them, those of news are imagined."""


@dataclass(frozen=True)
class StepBenchmark:
    """What a machine can do for a recipe."""

    device: str
    gpus: int
    driver: str
    """Version of NVIDIA's driver; empty where there is none."""
    torch: str
    tokens_per_s: float
    """Source and target tokens of one worker, forwards and backwards."""
    pass_s: float
    """What going through the model takes besides, however few the tokens."""
    update_s: float
    copy_s: float
    """Putting all gradients into a message, and taking them out again."""
    piece_tokens: int
    """Most target tokens that go through the model at once."""
    parameters: int
    memory_bytes: int
    """Of the device."""
    free_disk_bytes: int
    nominal_bits_per_s: dict[str, float]


@dataclass(frozen=True)
class Measurements:
    """What was measured."""

    tryouts: dict[str, StepBenchmark]
    """By host."""
    links: dict[Pair, LinkSpeed]
    clocks_s: dict[str, float]
    """By how much each host's clock is ahead of this machine's."""


def examine(machines: Sequence[Machine], exercise: BenchmarkRequest, client: Client) -> Measurements:
    """Let every machine train a little, and then every pair of them send each other messages."""
    names = [machine.name for machine in machines]
    with Agents(machines, client) as crew:
        asked_at_s = time.time()
        hellos, lost = crew.ask_all({host: ("hello", {"folder": home_folder(), "make": False}) for host in names})
        clocks_s = clock_offsets({host: hello["at_s"] for host, hello in hellos.items()}, asked_at_s, time.time())
        problems = [Problem(host, f"cannot be used: {reason}.") for host, reason in lost.items()]
        problems += compare_versions(dragoman_version(), {host: str(each["dragoman"]) for host, each in hellos.items()})
        if problems:
            raise HostsError(problems)
        tryouts = try_out_all(crew, machines, exercise)
        links = {}
        if len(names) > 1:
            ways, problems = find_ways(crew, names)
            if problems:
                raise HostsError(problems)
            links = measure_links(crew, ways, permutations(names, 2))
        return Measurements(tryouts, links, clocks_s)


def try_out_all(crew: Agents, machines: Sequence[Machine], exercise: BenchmarkRequest) -> dict[str, StepBenchmark]:
    """A few real training passes on every machine, all at the same time."""
    job = {**asdict(exercise), "all_workers": sum(each.workers or 1 for each in machines)}
    answers, lost = crew.ask_all(
        {each.name: ("tryout", {"job": {**job, "workers": each.workers or 1}}) for each in machines}
    )
    problems = _lost(lost)
    problems += [
        Problem(host, f"cannot train: {each['problem']}.") for host, each in answers.items() if "problem" in each
    ]
    if problems:
        raise HostsError(problems)
    return {machine.name: StepBenchmark(**answers[machine.name]) for machine in machines}


def find_ways(crew: Agents, hosts: Sequence[str]) -> tuple[dict[str, Address], list[Problem]]:
    """Let every host try to reach every other: what is found to work needs no guessing about routes."""
    peers, lost = crew.ask_all({host: ("listen", {}) for host in hosts})
    reached, more = crew.ask_all(
        {host: ("reach", {"peers": {name: peer for name, peer in peers.items() if name != host}}) for host in peers}
    )
    if lost or more:
        return {}, _lost({**lost, **more})
    return meet({host: [(i, a) for i, a in peer["addresses"]] for host, peer in peers.items()}, reached)


def measure_links(crew: Agents, ways: Mapping[str, Address], pairs: Iterable[Pair]) -> dict[Pair, LinkSpeed]:
    """One direction after the other: together they would share what each could have alone."""
    receivers, lost = crew.ask_all({host: ("receive", {}) for host in ways})
    if lost:
        raise HostsError(_lost(lost))
    links = {}
    for sender, receiver in pairs:
        question = {"address": ways[receiver][1], "port": receivers[receiver]["port"]}
        answers, lost = crew.ask_all({sender: ("measure", question)})
        if lost or "problem" in answers[sender]:
            reason = lost[sender] if lost else answers[sender]["problem"]
            raise HostsError([Problem(sender, f"cannot send to {receiver}: {reason}.")])
        links[sender, receiver] = LinkSpeed(**answers[sender])
    return links


def _lost(lost: Mapping[str, HostLostError]) -> list[Problem]:
    return [Problem(host, f"was lost: {reason}.") for host, reason in lost.items()]
