"""`dragoman doctor`: measures the machines and the links between them, in under a minute, and says what to expect."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from dragoman.config import Settings
from dragoman.errors import DragomanError
from dragoman.insight.doctor import Budget, Diagnosis, changed, diagnose
from dragoman.insight.predictor import METHODS, Plan
from dragoman.launch.agent import dragoman_version
from dragoman.launch.checks import HostsError, Problem, compare_versions
from dragoman.launch.crew import Crew
from dragoman.launch.launcher import find_ways
from dragoman.launch.link import Link
from dragoman.launch.order import home_folder
from dragoman.launch.ssh import Client, Machine
from dragoman.launch.tryout import Tryout
from dragoman.terminal import count, table
from dragoman.training import method

ASSUMED_BITS_PER_S = 1e9
"""Of a link that a question is about, where there is none to measure."""


@dataclass(frozen=True)
class Examination:
    """What was measured."""

    tryouts: dict[str, Tryout]
    """By host."""
    links: dict[tuple[str, str], Link]
    """From one host to another."""


def examine(machines: Sequence[Machine], recipe: str, overrides: Sequence[str], client: Client) -> Examination:
    """Let every machine train a little, and then every pair of them send each other messages."""
    names = [machine.name for machine in machines]
    with Crew(machines, client) as crew:
        hellos, lost = crew.ask_all({host: ("hello", {"folder": home_folder(), "make": False}) for host in names})
        problems = [Problem(host, f"cannot be used: {reason}.") for host, reason in lost.items()]
        problems += compare_versions(dragoman_version(), {host: str(each["dragoman"]) for host, each in hellos.items()})
        if problems:
            raise HostsError(problems)
        job = {"recipe": recipe, "overrides": list(overrides)}
        answers, lost = crew.ask_all(
            {each.name: ("tryout", {"job": {**job, "workers": each.workers or 1}}) for each in machines}
        )
        problems = [Problem(host, f"was lost: {reason}.") for host, reason in lost.items()]
        problems += [
            Problem(host, f"cannot train: {each['problem']}.") for host, each in answers.items() if "problem" in each
        ]
        if problems:
            raise HostsError(problems)
        tryouts = {host: Tryout(**answers[host]) for host in names}
        return Examination(tryouts, _measure_links(crew, names) if len(names) > 1 else {})


def _measure_links(crew: Crew, names: Sequence[str]) -> dict[tuple[str, str], Link]:
    """Each direction of each pair, one after the other: together they would share what each could have alone."""
    ways, problems = find_ways(crew, names)
    receivers, lost = crew.ask_all({host: ("receive", {}) for host in names})
    problems += [Problem(host, f"was lost: {reason}.") for host, reason in lost.items()]
    if problems:
        raise HostsError(problems)
    links = {}
    for sender in names:
        for receiver in names:
            if sender == receiver:
                continue
            question = {"address": ways[receiver][1], "port": receivers[receiver]["port"]}
            answers, lost = crew.ask_all({sender: ("measure", question)})
            if lost or "problem" in answers[sender]:
                reason = lost[sender] if lost else answers[sender]["problem"]
                raise HostsError([Problem(sender, f"cannot send to {receiver}: {reason}.")])
            links[sender, receiver] = Link(**answers[sender])
    return links


def make_plan(found: Examination, machines: Sequence[Machine], settings: Settings) -> Plan:
    """The recipe on these machines, as the predictor sees it."""
    speeds = tuple(
        found.tryouts[machine.name].tokens_per_s
        for machine in machines
        for _ in range(machine.workers or found.tryouts[machine.name].gpus or 1)
    )
    any_tryout = next(iter(found.tryouts.values()))
    plan = Plan(
        parameters=any_tryout.parameters,
        step_tokens=2 * settings.batch.tokens,
        tokens_per_s=speeds,
        update_s=max(tryout.update_s for tryout in found.tryouts.values()),
        bits_per_s=min((link.bits_per_s for link in found.links.values()), default=ASSUMED_BITS_PER_S),
        latency_s=max((link.latency_s for link in found.links.values()), default=0.0) * (len(speeds) - 1),
        balanced=settings.training.shares == "auto",
    )
    return _with_method(plan, settings)


def _with_method(plan: Plan, settings: Settings) -> Plan:
    """The exchange method that training will use: the set one, or what `auto` will find."""
    exchange = settings.exchange
    if exchange.method == "auto" and plan.workers > 1:
        compute_s = plan.step_tokens / sum(plan.tokens_per_s)
        link = method.Link(plan.latency_s, plan.bits_per_s / 8)
        choice = method.choose(method.Conditions(link, compute_s, plan.parameters, plan.workers))
    else:
        choice = method.fixed(exchange) if exchange.method != "auto" else method.Choice("plain")
    if choice.method not in METHODS:
        raise DragomanError(
            f"exchange.method={choice.method} cannot be predicted: ask for one of {', '.join(METHODS)} or auto."
        )
    return Plan(**{**asdict(plan), "method": choice.method, "every": choice.every})


def consult(
    machines: Sequence[Machine], recipe: str, overrides: Sequence[str], settings: Settings, client: Client,
    questions: Sequence[str],
) -> tuple[Examination, dict[str, Diagnosis]]:  # fmt: skip
    """Examine the machines, and judge the plan as it is and as each question would have it."""
    found = examine(machines, recipe, overrides, client)
    plan = make_plan(found, machines, settings)
    hosts = {host: tryout.tokens_per_s for host, tryout in found.tryouts.items()}
    slowest = min(found.links, key=lambda pair: found.links[pair].bits_per_s, default=None)
    named = "The link" if slowest is None else f"The port between {slowest[0]} and {slowest[1]}"
    prices = settings.money.price_per_hour
    per_hour = None
    if len(prices) in (1, len(machines)):
        per_hour = sum(prices) if len(prices) == len(machines) else prices[0] * len(machines)
    budget = Budget(settings.training.steps, per_hour, settings.money.currency)
    diagnoses = {"": diagnose(plan, hosts, named, budget)}
    for question in questions:
        other = changed(plan, question)
        diagnoses[question] = diagnose(other, hosts, "The link", budget.scaled(other.workers / plan.workers))
    return found, diagnoses


def show(found: Examination, diagnoses: dict[str, Diagnosis], console: Console) -> None:
    """For people."""
    rows = table("machine", "device", "GPUs", "tokens/s", "update", "torch", right=(2, 3, 4))
    for host, tryout in found.tryouts.items():
        rows.add_row(
            host, tryout.device, str(tryout.gpus), count(tryout.tokens_per_s), f"{tryout.update_s:.3f} s", tryout.torch
        )
    console.print(rows)
    if found.links:
        console.print()
        rows = table("from", "to", "Mbit/s", "there and back", right=(2, 3))
        for (sender, receiver), link in found.links.items():
            rows.add_row(sender, receiver, count(link.bits_per_s / 1e6), f"{1000 * link.latency_s:.2f} ms")
        console.print(rows)
    for question, diagnosis in diagnoses.items():
        console.print(f"\n[bold]{escape(question) or 'As it is'}[/bold]", highlight=False)
        for sentence in diagnosis.sentences:
            console.print(escape(sentence), highlight=False)
        for remedy in diagnosis.remedies:
            console.print(f"  instead {escape(remedy)}", highlight=False)


def as_json(found: Examination, diagnoses: dict[str, Diagnosis]) -> dict[str, Any]:
    """For scripts."""
    return {
        "hosts": {host: asdict(tryout) for host, tryout in found.tryouts.items()},
        "links": [{"from": a, "to": b, **asdict(link)} for (a, b), link in found.links.items()],
        "plans": {
            question or "as it is": {**asdict(diagnosis), "step_s": diagnosis.prediction.step_s}
            for question, diagnosis in diagnoses.items()
        },
    }
