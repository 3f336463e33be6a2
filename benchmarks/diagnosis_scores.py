"""Scores of diagnoses against the known faults of runs: right or wrong, and precision and recall by kind."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.reporting import Figure


@dataclass(frozen=True)
class JudgedRun:
    """A run, the warnings that it should get, and those that it got."""

    name: str
    expected: frozenset[str]
    found: frozenset[str]
    is_right: bool
    """The warnings are those expected, and so is all else that the case is about."""
    text: str
    """What was found, for a table."""


@dataclass(frozen=True)
class KindScore:
    """Runs with one kind of warning."""

    right: int
    """Expected and found."""
    found: int
    expected: int

    @property
    def precision(self) -> float | None:
        """Part of the found warnings that were expected; None if none was found."""
        return self.right / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """Part of the expected warnings that were found; None if none was expected."""
        return self.right / self.expected if self.expected else None

    def __str__(self) -> str:
        return f"precision {self.right} of {self.found}, recall {self.right} of {self.expected}"


def score_by_kind(runs: Iterable[JudgedRun]) -> dict[str, KindScore]:
    """Scores of every kind of warning that was expected or found."""
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for run in runs:
        right.update(run.expected & run.found)
        found.update(run.found)
        expected.update(run.expected)
    return {kind: KindScore(right[kind], found[kind], expected[kind]) for kind in sorted(found | expected)}


def false_alarms(runs: Iterable[JudgedRun]) -> int:
    """Healthy runs that got a warning."""
    return sum(bool(run.found) for run in runs if not run.expected)


def judge_runs(runs: Iterable[JudgedRun], name: str, target: str) -> Iterator[Figure]:
    """A row for each run as soon as it is judged, then the scores of all."""
    judged: list[JudgedRun] = []
    for run in runs:
        judged.append(run)
        text = run.text + ("" if run.is_right else ": WRONG")
        yield Figure(f"diagnosis, {name}: {run.name}", text, "right", run.is_right)
    yield from summarize_scores(judged, name, target)


def summarize_scores(judged: Sequence[JudgedRun], name: str, target: str) -> Iterator[Figure]:
    right = sum(run.is_right for run in judged)
    yield Figure(f"diagnoses that are right, {name}", f"{right} of {len(judged)}", target, right)
    healthy, alarms = sum(not run.expected for run in judged), false_alarms(judged)
    yield Figure(f"healthy runs with a warning, {name}", f"{alarms} of {healthy}", "0", alarms)
    for kind, score in score_by_kind(judged).items():
        values = {"precision": score.precision, "recall": score.recall}
        yield Figure(f"{kind}, {name}", str(score), "", values)
