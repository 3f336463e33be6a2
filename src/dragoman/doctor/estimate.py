"""Before the money is spent: what a recipe will take on these machines, what limits it, and what to change."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from dragoman.errors import DragomanError
from dragoman.number_format import count, span
from dragoman.step_model import METHODS, Prediction, StepConditions, predict, what_if

SENSIBLE_WAIT = 0.5
"""Part of a step that may go into waiting for the network before a plan is not sensible."""
WORTH = 0.9
"""A change is worth telling when the step gets at least this much shorter."""
UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg])bit(?:/s)?", re.IGNORECASE)
LIKELY_LINKS = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10}


@dataclass(frozen=True)
class Diagnosis:
    """What was found, in words, with the numbers behind it."""

    sentences: list[str]
    remedies: list[str]
    """Best first."""
    sensible: bool
    prediction: Prediction
    tokens_per_s: float
    total_s: float
    cost: float | None = None


@dataclass(frozen=True)
class Budget:
    """How long a recipe trains, and what the machines cost together."""

    steps: int
    per_hour: float | None
    currency: str

    def scaled(self, factor: float) -> "Budget":
        """The same for more or fewer machines like these."""
        return self if self.per_hour is None else replace(self, per_hour=self.per_hour * factor)


def diagnose(plan: StepConditions, hosts: Mapping[str, float], slowest_link: str, budget: Budget) -> Diagnosis:
    """The verdict on a plan. `hosts` are tokens a second by host; `slowest_link` names what carries least."""
    predicted = predict(plan)
    total_s = budget.steps * predicted.step_s
    cost = None if budget.per_hour is None else budget.per_hour * total_s / 3600
    price = "" if cost is None else f", {cost:,.2f} {budget.currency}"
    sentences = [
        f"A step takes about {predicted.step_s:.2f} s: {predicted.compute_s:.2f} s of computing, "
        f"{predicted.update_s:.2f} s for the update, {predicted.exchange_s:.2f} s of waiting for the network "
        f"({plan.method}).",
        f"That is {count(plan.step_tokens / predicted.step_s)} tokens a second, and {span(total_s)}{price} to the end "
        f"of {count(budget.steps)} steps, evaluations not counted.",
    ]
    waits = predicted.exchange_s / predicted.step_s
    alone = max(hosts, key=lambda host: hosts[host])
    alone_s = predict(replace(plan, tokens_per_s=(max(plan.tokens_per_s),))).step_s
    sensible = True
    if plan.workers > 1:
        if waits > 0.1:
            sentences.append(
                f"{slowest_link} carries {plan.bits_per_s / 1e6:,.0f} Mbit/s: {predicted.exchange_s:.1f} of each "
                f"{predicted.step_s:.1f} s would be spent waiting."
            )
        if predicted.step_s >= alone_s:
            sensible = False
            sentences.append(f"{alone} alone would be faster: {alone_s:.2f} s a step.")
        elif waits > SENSIBLE_WAIT:
            sensible = False
            sentences.append("Most of what the machines cost would be spent on waiting.")
        slowest = min(hosts, key=lambda host: hosts[host])
        if hosts[slowest] < 0.8 * hosts[alone]:
            sentences.append(
                f"{slowest} computes {hosts[slowest] / hosts[alone]:.0%} as fast as {alone}: with training.shares=auto "
                "each gets what it can take."
            )
    return Diagnosis(
        sentences, _remedies(plan, predicted), sensible, predicted, plan.step_tokens / predicted.step_s, total_s, cost
    )


def _remedies(plan: StepConditions, now: Prediction) -> list[str]:
    """What would shorten the step, best first."""
    if plan.workers == 1:
        return []
    options = {f"exchange.method={method}": what_if(plan, method=method, every=16) for method in METHODS}
    options |= {
        f"a link of {name}": what_if(plan, bits_per_s=bits)
        for name, bits in LIKELY_LINKS.items()
        if bits > plan.bits_per_s
    }
    better = sorted(
        (predicted.step_s, name) for name, predicted in options.items() if predicted.step_s < WORTH * now.step_s
    )
    return [f"{name}: {step_s:.2f} s a step" for step_s, name in better]


def changed(plan: StepConditions, question: str) -> StepConditions:
    """A plan with what a question asks for."""
    for change in understand(question):
        plan = change(plan)
    return plan


def understand(question: str) -> list[Callable[[StepConditions], StepConditions]]:
    """What `--what-if link=1gbit,hosts=4,exchange=bf16` changes in a plan."""
    return [_change(word.strip()) for word in question.split(",")]


def _change(word: str) -> Callable[[StepConditions], StepConditions]:
    key, _, value = word.partition("=")
    if key == "link" and (match := _BANDWIDTH.fullmatch(value)):
        return partial(replace, bits_per_s=float(match[1]) * UNITS[match[2].lower()])
    if key == "hosts" and value.isdecimal() and 0 < int(value) <= 1024:
        return partial(_with_hosts, hosts=int(value))
    if key == "exchange" and value in METHODS:
        return partial(replace, method=value, every=16 if value == "local" else 1)
    raise DragomanError(
        f"--what-if {word} is not understood: write link=1gbit, hosts=4 or exchange=bf16 "
        f"(of {', '.join(METHODS)}), with commas between."
    )


def _with_hosts(plan: StepConditions, hosts: int) -> StepConditions:
    # Machines that are not there yet are taken to be like the slowest one.
    speeds = sorted(plan.tokens_per_s, reverse=True)
    speeds += [speeds[-1]] * (hosts - len(speeds))
    return replace(plan, tokens_per_s=tuple(speeds[:hosts]))
