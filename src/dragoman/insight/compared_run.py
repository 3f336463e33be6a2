"""A run that is compared with others: its history, result and cost under a name that tells it from them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count as numbers
from pathlib import Path

from dragoman.insight.run_history import RunHistory
from dragoman.insight.run_result import RunResult, find_result
from dragoman.insight.time_and_cost import find_hourly_cost
from dragoman.number_format import span
from dragoman.run_folder import RunFolder
from dragoman.telemetry.kept_translations import KeptTranslations, TranslationStore


@dataclass(frozen=True)
class Significance:
    """The difference between two sets of translations of the same sentences."""

    bleu_p_value: float
    """Probability of a difference this large between systems of equal quality."""
    chrf_p_value: float


SignificanceTest = Callable[[KeptTranslations, KeptTranslations], Significance]
"""A paired bootstrap test. Passed in by the caller: insight must not import decoding, which scores."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs of a comparison."""

    name: str
    history: RunHistory
    state: str
    store: TranslationStore

    @cached_property
    def result(self) -> RunResult | None:
        return find_result(self.history)

    @cached_property
    def kept(self) -> KeptTranslations | None:
        """The translations by the best checkpoint; None if they are not in this folder."""
        result = self.result
        if result is None or result.bleu is None:
            return None
        kept = self.store.read(result.checkpoint)
        if kept is None or kept.step != result.step or not math.isclose(kept.bleu, result.bleu):
            return None
        return kept

    @property
    def cost(self) -> tuple[float, str] | None:
        """Amount and currency."""
        cost = find_hourly_cost(self.history)
        return None if cost is None else (cost.amount(self.history.elapsed_s), cost.currency)

    def setting(self, section: str, name: str) -> object:
        return self.history.setting(section, name)


def open_compared_run(name: str, path: Path, history: RunHistory, now_s: float) -> ComparedRun:
    return ComparedRun(name, history, history.state(now_s), TranslationStore(RunFolder(path).translations))


def name_runs(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell the runs apart. A run that is given twice is numbered."""
    parts = [path.resolve().parts for path in paths]
    longest = max(map(len, parts))
    length = next((n for n in range(1, longest) if len({each[-n:] for each in parts}) == len(set(parts))), longest)
    names = ["/".join(each[-length:]) for each in parts]
    unique: list[str] = []
    for name in names:
        numbered = (f"{name} ({number})" for number in numbers(2))
        unique.append(name if name not in unique else next(each for each in numbered if each not in unique))
    return unique


def describe_cost(run: ComparedRun, other: ComparedRun) -> str:
    """The cost of a run against another, such as `for 3.10 EUR more`; in time where prices are not known."""
    if run.cost is not None and other.cost is not None and run.cost[1] == other.cost[1]:
        difference = run.cost[0] - other.cost[0]
        if abs(difference) < 0.005:
            return "at the same cost"
        return f"for {abs(difference):,.2f} {run.cost[1]} {'more' if difference > 0 else 'less'}"
    difference = run.history.elapsed_s - other.history.elapsed_s
    return f"in {span(abs(difference))} {'more' if difference > 0 else 'less'}"


def cheapest_first(runs: Sequence[ComparedRun]) -> tuple[list[ComparedRun], list[float], str]:
    """Runs by cost, or by time where not all prices are known, with the amounts, and the word for less of them."""
    costs = [run.cost for run in runs]
    currencies = {cost[1] for cost in costs if cost is not None}
    if None not in costs and len(currencies) == 1:
        amounts, less = [cost[0] for cost in costs if cost is not None], "cheaper"
    else:
        amounts, less = [run.history.elapsed_s for run in runs], "faster"
    order = sorted(range(len(runs)), key=lambda index: amounts[index])
    return [runs[index] for index in order], [amounts[index] for index in order], less
