"""`dragoman doctor`: measures the machines and the links between them, in under a minute, and says what to expect."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.markup import escape

from dragoman.corpus.dataset import DataSet
from dragoman.distributed import choose_exchange
from dragoman.doctor.estimate import Budget, Diagnosis, changed, diagnose, understand
from dragoman.doctor.measurements import (
    BenchmarkRequest,
    Measurements,
    StepBenchmark,
    examine,
    measure_links,
    try_out_all,
)
from dragoman.errors import DragomanError
from dragoman.launch.agents import Agents
from dragoman.launch.launch_request import LaunchRequest
from dragoman.launch.network_interfaces import Address
from dragoman.launch.preflight import Problem, checkpoint_bytes, compare_clocks
from dragoman.launch.ssh import Client, Machine
from dragoman.number_format import count, size
from dragoman.settings import Settings
from dragoman.step_model import METHODS, StepConditions, wire_time
from dragoman.terminal import table

ASSUMED_BITS_PER_S = 1e9
"""Of a link that a question is about, where there is none to measure."""
SAMPLED_PAIRS = 4000
"""Of a data set, whose lengths are told to all machines."""
NOTICEABLE_S = 0.1
"""An exchange that takes less holds up no step that is worth a warning."""


def make_plan(found: Measurements, machines: Sequence[Machine], settings: Settings) -> StepConditions:
    """The recipe on these machines, as the predictor sees it."""
    speeds = tuple(
        found.tryouts[machine.name].tokens_per_s
        for machine in machines
        for _ in range(machine.workers or found.tryouts[machine.name].gpus or 1)
    )
    any_tryout = next(iter(found.tryouts.values()))
    plan = StepConditions(
        parameters=any_tryout.parameters,
        step_tokens=2 * settings.batch.tokens,
        tokens_per_s=speeds,
        pass_s=max(tryout.pass_s for tryout in found.tryouts.values()),
        update_s=max(tryout.update_s for tryout in found.tryouts.values()),
        copy_s=max(tryout.copy_s for tryout in found.tryouts.values()),
        bits_per_s=min((link.bits_per_s for link in found.links.values()), default=ASSUMED_BITS_PER_S),
        latency_s=max((link.latency_s for link in found.links.values()), default=0.0) * (len(speeds) - 1),
        balanced=settings.training.shares == "auto",
    )
    return _with_method(plan, settings)


def _with_method(plan: StepConditions, settings: Settings) -> StepConditions:
    """The exchange method that training will use: the set one, or what `auto` will find."""
    exchange = settings.exchange
    if exchange.method == "auto" and plan.workers > 1:
        link = choose_exchange.MeasuredLink(plan.latency_s, plan.bits_per_s / 8)
        choice = choose_exchange.choose(choose_exchange.Conditions(link, plan.compute_s, plan.parameters, plan.workers))
    else:
        choice = choose_exchange.fixed(exchange) if exchange.method != "auto" else choose_exchange.Choice("plain")
    if choice.method not in METHODS:
        raise DragomanError(
            f"exchange.method={choice.method} cannot be predicted: ask for one of {', '.join(METHODS)} or auto."
        )
    return StepConditions(**{**asdict(plan), "method": choice.method, "every": choice.every})


def exercise_on(data: DataSet | None, recipe: str, overrides: Sequence[str]) -> BenchmarkRequest:
    """The recipe as it is, or with the vocabulary of a data set and sentences as long as there."""
    if data is None:
        return BenchmarkRequest(recipe, overrides)
    lengths = data.pairs("train").lengths()
    some = lengths[:: max(1, len(lengths) // SAMPLED_PAIRS)].tolist()
    vocabulary = f"tokenizer.vocabulary_size={data.tokenizer.padded_vocab_size}"
    return BenchmarkRequest(recipe, [*overrides, vocabulary], [(source, target) for source, target in some])


def consult(
    machines: Sequence[Machine],
    exercise: BenchmarkRequest,
    settings: Settings,
    client: Client,
    questions: Sequence[str],
) -> tuple[Measurements, dict[str, Diagnosis]]:
    """Examine the machines, and judge the plan as it is and as each question would have it."""
    for question in questions:
        understand(question)  # A mistake shows before anything is measured.
    found = examine(machines, exercise, client)
    plan, budget = make_plan(found, machines, settings), _budget(settings, len(machines))
    diagnoses = {"": _diagnose(found, plan, budget)}
    for question in questions:
        other = changed(plan, question)
        diagnoses[question] = _diagnose(found, other, budget.scaled(other.workers / plan.workers), named="The link")
    return found, diagnoses


def _diagnose(found: Measurements, plan: StepConditions, budget: Budget, named: str = "") -> Diagnosis:
    hosts = {host: tryout.tokens_per_s for host, tryout in found.tryouts.items()}
    slowest = min(found.links, key=lambda pair: found.links[pair].bits_per_s, default=None)
    between = "The link" if slowest is None else f"The port between {slowest[0]} and {slowest[1]}"
    return diagnose(plan, hosts, named or between, budget)


def _budget(settings: Settings, machines: int) -> Budget:
    prices = settings.money.price_per_hour
    per_hour = None
    if len(prices) in (1, machines):
        per_hour = sum(prices) if len(prices) == machines else prices[0] * machines
    return Budget(settings.training.steps, per_hour, settings.money.currency)


def find_wants(found: Measurements, settings: Settings) -> list[Problem]:
    """What the machines lack, besides speed."""
    wants = compare_clocks(found.clocks_s)
    for host, tryout in found.tryouts.items():
        needed_bytes = checkpoint_bytes(settings, tryout.parameters)
        if tryout.free_disk_bytes < needed_bytes:
            wants.append(
                Problem(
                    host,
                    f"has {size(tryout.free_disk_bytes)} free, and checkpoints take up to {size(needed_bytes)}: make "
                    "room, or lower checkpoint.keep_last.",
                )
            )
    return wants


def forewarn(
    order: LaunchRequest, crew: Agents, addresses: Mapping[str, Address], parameters: int, console: Console
) -> None:
    """The quick part, before a launch: say so where most of the time would go into waiting for the network.

    Training that chooses its own exchange measures for itself. For a method that was set, the links come first; only
    where they could hold up a step do the machines have to show how long one takes.
    """
    method_set, names = order.settings.exchange.method, [machine.name for machine in order.machines]
    ring = zip(names, [*names[1:], names[0]], strict=True)
    links = measure_links(crew, addresses, ring)
    plan = StepConditions(
        parameters, 0, (1.0,) * len(names), 0.0, min(link.bits_per_s for link in links.values()), method=method_set
    )
    if wire_time(plan) < NOTICEABLE_S:
        return
    console.print("The link is slow: trying out how long a step computes.", highlight=False)
    tryouts = try_out_all(crew, order.machines, BenchmarkRequest(order.recipe, order.overrides))
    found = Measurements(tryouts, links, {})
    plan = replace(make_plan(found, order.machines, order.settings), parameters=parameters)
    diagnosis = _diagnose(found, plan, _budget(order.settings, len(names)))
    if diagnosis.sensible:
        return
    for sentence in diagnosis.sentences:
        console.print(f"[yellow]{escape(sentence)}[/yellow]", highlight=False)
    for remedy in diagnosis.remedies:
        console.print(f"[yellow]  instead {escape(remedy)}[/yellow]", highlight=False)
    console.print("It is started all the same; Ctrl-C stops it.", highlight=False)


def show(found: Measurements, diagnoses: dict[str, Diagnosis], settings: Settings, console: Console) -> None:
    """For people."""
    rows = table(
        "machine", "device", "tokens/s", "update", "at once", "memory", "free disk", "port", "torch",
        right=(2, 3, 4, 5, 6, 7),
    )  # fmt: skip
    for host, tryout in found.tryouts.items():
        rows.add_row(
            host,
            f"{tryout.gpus} x {tryout.device}" if tryout.gpus > 1 else tryout.device,
            count(tryout.tokens_per_s),
            f"{tryout.update_s:.3f} s",
            f"{count(tryout.piece_tokens)} tokens",
            size(tryout.memory_bytes),
            size(tryout.free_disk_bytes),
            _port(tryout),
            tryout.torch + (f", driver {tryout.driver}" if tryout.driver else ""),
        )
    console.print(rows)
    if found.links:
        console.print()
        rows = table("from", "to", "Mbit/s", "there and back", right=(2, 3))
        for (sender, receiver), link in found.links.items():
            rows.add_row(sender, receiver, count(link.bits_per_s / 1e6), f"{1000 * link.latency_s:.2f} ms")
        console.print(rows)
    for want in find_wants(found, settings):
        console.print(f"[yellow]{want.host} {escape(want.sentence)}[/yellow]", highlight=False)
    for question, diagnosis in diagnoses.items():
        console.print(f"\n[bold]{escape(question) or 'As it is'}[/bold]", highlight=False)
        for sentence in diagnosis.sentences:
            console.print(escape(sentence), highlight=False)
        for remedy in diagnosis.remedies:
            console.print(f"  instead {escape(remedy)}", highlight=False)


def _port(tryout: StepBenchmark) -> str:
    """What the machine's fastest port is made for."""
    fastest = max(tryout.nominal_bits_per_s.values(), default=0.0)
    return f"{count(fastest / 1e6)} Mbit/s" if fastest else "not said"


def as_json(found: Measurements, diagnoses: dict[str, Diagnosis], settings: Settings) -> dict[str, Any]:
    """For scripts."""
    return {
        "hosts": {host: {**asdict(tryout), "clock_s": found.clocks_s[host]} for host, tryout in found.tryouts.items()},
        "wants": [asdict(want) for want in find_wants(found, settings)],
        "links": [{"from": a, "to": b, **asdict(link)} for (a, b), link in found.links.items()],
        "plans": {
            question or "as it is": {**asdict(diagnosis), "step_s": diagnosis.prediction.step_s}
            for question, diagnosis in diagnoses.items()
        },
    }
