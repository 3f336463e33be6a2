"""Measure machines and the links between them, through the agents on the hosts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations

from dragoman.launch.agents import Agents
from dragoman.launch.host_preparation import connect, find_addresses
from dragoman.launch.network_interfaces import Address
from dragoman.launch.preflight import HostProblem, HostsError, lost_problems
from dragoman.launch.ssh import Machine, SshClient
from dragoman.step_model import TcpLink

HostPair = tuple[str, str]
"""A host that sends, and one that receives."""


@dataclass(frozen=True)
class BenchmarkRequest:
    """The training step to benchmark."""

    recipe: str
    overrides: Sequence[str]
    lengths: Sequence[tuple[int, int]] = ()
    """Source and target tokens of sampled pairs; without them, lengths are drawn as in news text."""


@dataclass(frozen=True)
class StepBenchmark:
    """Speed of one worker on a machine, and what the machine has."""

    device: str
    gpus: int
    driver: str
    """Version of the NVIDIA driver; empty without one."""
    torch: str
    tokens_per_s: float
    """Source and target tokens, forward and backward."""
    pass_s: float
    """Fixed cost of forward and backward, however few the tokens."""
    update_s: float
    copy_s: float
    """Copying all gradients into a message and back."""
    compress_s: float
    """Computing PowerSGD's factors and multiplying them."""
    micro_tokens: int
    """Most target tokens in one micro-batch."""
    parameters: int
    matrices: Sequence[tuple[int, int]]
    """Shapes of the weight matrices."""
    memory_bytes: int
    """Of the device."""
    free_disk_bytes: int
    nominal_bits_per_s: dict[str, float]
    """Link speed of each network interface that reports one."""


@dataclass(frozen=True)
class Measurements:
    """Results for all machines and links."""

    benchmarks: dict[str, StepBenchmark]
    """By host."""
    links: dict[HostPair, TcpLink]
    clock_offsets_s: dict[str, float]
    """How far each host's clock is ahead of this machine's."""

    @property
    def slowest_link(self) -> HostPair | None:
        return min(self.links, key=lambda pair: self.links[pair].bits_per_s, default=None)


def measure(machines: Sequence[Machine], request: BenchmarkRequest, client: SshClient) -> Measurements:
    """Benchmark every machine, and then every link in both directions."""
    hosts = [machine.name for machine in machines]
    with Agents(machines, client) as agents:
        handshakes = connect(agents, hosts)
        _raise_any(handshakes.problems)
        benchmarks = benchmark_machines(agents, machines, request)
        links: dict[HostPair, TcpLink] = {}
        if len(hosts) > 1:
            addresses, problems = find_addresses(agents, hosts)
            _raise_any(problems)
            links = measure_links(agents, addresses, permutations(hosts, 2))
        return Measurements(benchmarks, links, handshakes.clock_offsets_s)


def benchmark_machines(
    agents: Agents, machines: Sequence[Machine], request: BenchmarkRequest
) -> dict[str, StepBenchmark]:
    """Train a few steps on every machine, on all at the same time."""
    job = {**asdict(request), "all_workers": sum(each.workers or 1 for each in machines)}
    replies, lost = agents.request_each(
        {
            each.name: (
                "run_module",
                {"module": "dragoman.doctor.step_benchmark", "job": {**job, "workers": each.workers or 1}},
            )
            for each in machines
        }
    )
    problems = lost_problems(lost)
    problems += [
        HostProblem(host, f"cannot train: {each['problem']}.") for host, each in replies.items() if "problem" in each
    ]
    _raise_any(problems)
    return {machine.name: StepBenchmark(**replies[machine.name]) for machine in machines}


def measure_links(
    agents: Agents, addresses: Mapping[str, Address], pairs: Iterable[HostPair]
) -> dict[HostPair, TcpLink]:
    """Measure one link after the other: at the same time they would share bandwidth."""
    servers, lost = agents.request_each(
        {host: ("open_probe_server", {"address": address}) for host, (_, address) in addresses.items()}
    )
    _raise_any(lost_problems(lost))
    links = {}
    for sender, receiver in pairs:
        target = {"address": addresses[receiver][1], "port": servers[receiver]["port"]}
        replies, lost = agents.request_all([sender], "measure_link", **target)
        if lost or "problem" in replies[sender]:
            reason = lost[sender] if lost else replies[sender]["problem"]
            raise HostsError([HostProblem(sender, f"cannot send to {receiver}: {reason}.")])
        links[sender, receiver] = TcpLink(**replies[sender])
    agents.send_all("close_servers")
    return links


def _raise_any(problems: Sequence[HostProblem]) -> None:
    if problems:
        raise HostsError(problems)
