"""Measure machines and estimate a recipe on them: all of it for `dragoman doctor`, a quick part before a launch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dragoman.corpus.dataset import DataSet
from dragoman.doctor.estimate import Budget, Estimate, estimate
from dragoman.doctor.measurements import BenchmarkRequest, Measurements, benchmark_machines, measure, measure_links
from dragoman.doctor.what_if_option import apply_what_if, parse_what_if
from dragoman.launch.agents import Agents
from dragoman.launch.launch_request import LaunchRequest
from dragoman.launch.network_interfaces import Address
from dragoman.launch.preflight import HostProblem, HostReport, checkpoint_bytes, compare_clocks, disk_problem
from dragoman.launch.ssh import Machine, SshClient
from dragoman.number_format import count, percent
from dragoman.settings import Settings
from dragoman.step_model import (
    AUTO,
    ExchangeConditions,
    ExchangeMethod,
    StepConditions,
    TcpLink,
    exchange_method,
)

ASSUMED_LINK = TcpLink(1e9)
"""For `--what-if hosts=...` on a single machine, which has no link to measure."""
SAMPLED_PAIRS = 4000
"""Pairs of a data set whose lengths are sent to all machines."""
NOTABLE_EXCHANGE_S = 0.1
"""A shorter exchange is not worth benchmarking the machines before a launch."""
NOTABLE_GPU_USE = 0.1
"""Share of the time in which others use a GPU that is worth a word."""
NOTABLE_SPREAD = 0.3
"""Difference between the fastest and the slowest steps that is worth a word."""


@dataclass(frozen=True)
class Assessment:
    """Measurements, and the estimates that follow from them."""

    measurements: Measurements
    current: Estimate
    what_if: dict[str, Estimate]
    problems: list[HostProblem]
    """Of machines: their clocks, and their disk space."""
    doubts: list[str]
    """Sentences: why the run may be slower or faster than estimated."""
    quick: bool
    """Whether the benchmark was quick, and everything is rough."""


def benchmark_request(
    data: DataSet | None, recipe: str, overrides: Sequence[str], *, quick: bool = False
) -> BenchmarkRequest:
    """The recipe itself, or with the vocabulary and the sentence lengths of a data set."""
    if data is None:
        return BenchmarkRequest(recipe, overrides, quick=quick)
    pairs = data.pairs("train")
    lengths, chosen = pairs.lengths(), pairs.of_epoch(0, seed=0)
    longest = lengths[lengths.argmax(axis=0)]  # They limit what fits into a batch.
    lengths = lengths if chosen is None else lengths[chosen]
    sample = [*lengths[:: max(1, len(lengths) // SAMPLED_PAIRS)].tolist(), *longest.tolist()]
    vocabulary = f"tokenizer.vocabulary_size={data.tokenizer.padded_vocab_size}"
    return BenchmarkRequest(
        recipe,
        [*overrides, vocabulary],
        [(source, target) for source, target in sample],
        pairs=len(lengths),
        data=data.arguments,
        quick=quick,
    )


def assess(
    machines: Sequence[Machine],
    request: BenchmarkRequest,
    settings: Settings,
    client: SshClient,
    questions: Sequence[str] = (),
) -> Assessment:
    """Measure the machines, and estimate the run on them and under the conditions of each `--what-if`."""
    for question in questions:
        parse_what_if(question)  # Errors are reported before anything is measured.
    found = measure(machines, request, client)
    conditions = step_conditions(found, machines, settings)
    extremes = [step_conditions(each, machines, settings) for each in (found.at_fastest(), found.at_slowest())]
    fastest, slowest = (replace(each, method=conditions.method) for each in extremes)
    budget = _budget(settings, len(machines))
    answers = {}
    for question in questions:
        changed, *bounds = (apply_what_if(each, question) for each in (conditions, fastest, slowest))
        scaled = budget.scaled(changed.workers / conditions.workers)
        answers[question] = _estimate(found, changed, scaled, (bounds[0], bounds[1]), link_name="The link")
    current = _estimate(found, conditions, budget, (fastest, slowest))
    return Assessment(
        found, current, answers, _find_problems(found, settings), find_doubts(found, current), request.quick
    )


def find_doubts(found: Measurements, current: Estimate) -> list[str]:
    """Why the run may be slower or faster than estimated: busy machines, and times that scatter."""
    low, high = current.tokens_per_s_range
    expected = f"expect {count(low)} to {count(high)} tokens/s"
    benchmarks = found.benchmarks.items()
    busy = [
        f"{each.other_cores:.1f} of {each.cores} {'cores' if each.cores > 1 else 'core'} of {host}"
        for host, each in benchmarks
        if each.other_cores
    ]
    scattered = [host for host, each in benchmarks if each.slowest - each.fastest > NOTABLE_SPREAD]
    doubts = []
    if busy:
        alone = count(current.tokens_per_s)
        doubts.append(f"Other processes use {', '.join(busy)}: {expected}; alone about {alone}, which the tables show.")
    elif scattered:
        doubts.append(f"The times of steps on {', '.join(scattered)} scatter: {expected}.")
    for host, each in benchmarks:
        if each.other_gpu_use > NOTABLE_GPU_USE:
            use = percent(each.other_gpu_use)
            doubts.append(f"Other processes keep the GPU of {host} busy {use} of the time: alone, training is faster.")
        if each.micro_batches_split:
            tokens = count(each.micro_tokens)
            doubts.append(f"Micro-batches of {tokens} tokens do not fit into the memory of {host} and are split.")
    return doubts


def step_conditions(found: Measurements, machines: Sequence[Machine], settings: Settings) -> StepConditions:
    """The recipe on the measured machines."""
    benchmarks = list(found.benchmarks.values())
    speeds = tuple(
        found.benchmarks[machine.name].tokens_per_s
        for machine in machines
        for _ in range(machine.workers or found.benchmarks[machine.name].gpus or 1)
    )
    conditions = StepConditions(
        parameters=benchmarks[0].parameters,
        step_tokens=benchmarks[0].step_tokens,
        tokens_per_s=speeds,
        update_s=max(each.update_s for each in benchmarks),
        link=_slowest(found.links.values()),
        pass_s=max(each.pass_s for each in benchmarks),
        copy_s=max(each.copy_s for each in benchmarks),
        compress_s=max(each.compress_s for each in benchmarks),
        balanced=settings.training.shares == "auto",
        matrices=tuple((rows, columns) for rows, columns in benchmarks[0].matrices),
        machines=len(machines),
    )
    return replace(conditions, method=_method(conditions, settings))


def _method(conditions: StepConditions, settings: Settings) -> ExchangeMethod:
    """The exchange method that training will use: as set, or as `auto` will choose."""
    exchange = settings.exchange
    if exchange.method != AUTO:
        return exchange_method(
            exchange.method,
            interval=exchange.every,
            wire_format=exchange.wire_format,
            overlap=exchange.overlap,
            rank=exchange.powersgd_rank,
        )
    return conditions.chosen().method


def _slowest(links: Collection[TcpLink]) -> TcpLink:
    """A link as slow as the slowest in bandwidth and in latency: a ring passes through all of them."""
    if not links:
        return ASSUMED_LINK
    return TcpLink(min(link.bits_per_s for link in links), max(link.round_trip_s for link in links))


def check_links(
    request: LaunchRequest,
    agents: Agents,
    addresses: Mapping[str, Address],
    report: HostReport,
    say: Callable[[str], None],
) -> Estimate | None:
    """Before a launch: an estimate if the network makes the plan not sensible, otherwise None.

    With `exchange.method=auto` training measures and chooses for itself. For a method that is set, the links are
    measured first; the machines are benchmarked only if the links could slow down a step.
    """
    settings, hosts = request.settings, request.hosts
    if settings.exchange.method == "auto":
        return None
    links = measure_links(agents, addresses, zip(hosts, [*hosts[1:], hosts[0]], strict=True))
    exchange = ExchangeConditions(_slowest(links.values()).ring(len(hosts)), report.parameters, len(hosts))
    # PowerSGD sends less than plain, but how much less depends on shapes that are not known yet.
    name = "plain" if settings.exchange.method == "powersgd" else settings.exchange.method
    if exchange.exchange_s(exchange_method(name, wire_format=settings.exchange.wire_format)) < NOTABLE_EXCHANGE_S:
        return None
    say("The network is slow: benchmarking a training step on all machines.")
    vocabulary = f"tokenizer.vocabulary_size={report.vocabulary}"
    benchmark = BenchmarkRequest(request.recipe, [*request.overrides, vocabulary], quick=True)
    found = Measurements(benchmark_machines(agents, request.machines, benchmark), links, {})
    conditions = step_conditions(found, request.machines, settings)
    result = _estimate(found, conditions, _budget(settings, len(hosts)))
    return None if result.sensible else result


def _estimate(
    found: Measurements,
    conditions: StepConditions,
    budget: Budget,
    bounds: tuple[StepConditions, StepConditions] | None = None,
    link_name: str = "",
) -> Estimate:
    speeds = {host: benchmark.tokens_per_s for host, benchmark in found.benchmarks.items()}
    pair = found.slowest_link
    measured_link = "The link" if pair is None else f"The link from {pair[0]} to {pair[1]}"
    return estimate(conditions, speeds, link_name or measured_link, budget, bounds)


def _budget(settings: Settings, machines: int) -> Budget:
    prices = settings.money.price_per_hour
    per_hour = None
    if len(prices) in (1, machines):
        per_hour = sum(prices) if len(prices) == machines else prices[0] * machines
    return Budget(settings.training.steps, per_hour, settings.money.currency)


def _find_problems(found: Measurements, settings: Settings) -> list[HostProblem]:
    """Problems of the machines besides their speed."""
    problems = compare_clocks(found.clock_offsets_s)
    for host, benchmark in found.benchmarks.items():
        needed_bytes = checkpoint_bytes(settings, benchmark.parameters)
        if benchmark.free_disk_bytes < needed_bytes:
            problems.append(HostProblem(host, disk_problem(benchmark.free_disk_bytes, needed_bytes)))
    return problems
