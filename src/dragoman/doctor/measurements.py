"""Measure machines and the links between them, through the agents on the hosts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    pairs: int = 0
    """Pairs of the data set; 0 without one."""
    data: Sequence[str] = ()
    """Arguments of `--data`, for a benchmark on this machine."""
    quick: bool = False
    """Whether a rough result in a few seconds is enough: with few steps, and not compiled."""


@dataclass(frozen=True)
class StepBenchmark:
    """Speed of one worker on a machine, and what the machine has."""

    device: str
    gpus: int
    driver: str
    """Version of the NVIDIA driver; empty without one."""
    torch: str
    step_tokens_per_s: float
    """Source and target tokens of a worker's share in a whole step."""
    tokens_per_s: float
    """Source and target tokens, forward and backward, beyond the fixed cost."""
    pass_s: float
    """Fixed cost of forward and backward, however few the tokens."""
    update_s: float
    """Rest of a step: the optimizer, waiting for data, Python."""
    fastest: float
    slowest: float
    """Factors on these times: the range in which they lie."""
    step_tokens: float
    """Source and target tokens of a global batch, on average."""
    cores: int
    other_cores: float
    """Cores that other processes used while the benchmark waited for them. If so, the times are those without them."""
    other_gpu_use: float
    """Share of the time in which other processes kept the GPU busy, before the benchmark."""
    copy_s: float
    """Copying all gradients into a message and back."""
    compress_s: float
    """Computing PowerSGD's factors and multiplying them."""
    micro_tokens: int
    """Most target tokens in one micro-batch."""
    micro_batches_split: bool
    """Whether these did not fit into memory."""
    parameters: int
    matrices: Sequence[tuple[int, int]]
    """Shapes of the weight matrices."""
    memory_bytes: int
    """Of the device."""
    memory_peak_bytes: int
    """Most memory that training will use: of tensors on a GPU, or of the machine."""
    largest_micro_batch_tokens: int
    """About the most tokens of one side in a micro-batch that fits into memory."""
    free_disk_bytes: int
    nominal_bits_per_s: dict[str, float]
    """Link speed of each network interface that reports one."""
    benchmark_s: float
    """Time that the benchmark took."""

    def slowed(self, factor: float) -> "StepBenchmark":
        """The same with steps that take longer."""
        return replace(
            self,
            tokens_per_s=self.tokens_per_s / factor,
            pass_s=self.pass_s * factor,
            update_s=self.update_s * factor,
        )


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

    def at_fastest(self) -> "Measurements":
        """With the shortest time of steps that is likely on each machine."""
        return replace(self, benchmarks={host: each.slowed(each.fastest) for host, each in self.benchmarks.items()})

    def at_slowest(self) -> "Measurements":
        """With the longest."""
        return replace(self, benchmarks={host: each.slowed(each.slowest) for host, each in self.benchmarks.items()})


def measure(machines: Sequence[Machine], request: BenchmarkRequest, client: SshClient) -> Measurements:
    """Benchmark every machine, and then every link in both directions."""
    hosts = [machine.name for machine in machines]
    if len(machines) == 1 and machines[0].is_local:
        return _measure_here(machines[0], request)
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


def _measure_here(machine: Machine, request: BenchmarkRequest) -> Measurements:
    """Benchmark this machine in this process: no other needs to be started and to load torch."""
    from dragoman.doctor.step_benchmark import run_request

    benchmark = run_request(request, machine.workers, [machine.workers])
    return Measurements({machine.name: benchmark}, {}, {machine.name: 0.0})


def benchmark_machines(
    agents: Agents, machines: Sequence[Machine], request: BenchmarkRequest
) -> dict[str, StepBenchmark]:
    """Train a few steps on every machine, on all at the same time."""
    module, workers = "dragoman.doctor.step_benchmark", [each.workers for each in machines]
    # Other machines do not have the data set.
    job = {"request": asdict(replace(request, data=())), "workers": workers}
    replies, lost = agents.request_each(
        {
            each.name: ("run_module", {"module": module, "job": {**job, "local_workers": each.workers}})
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
