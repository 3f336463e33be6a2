"""The steps of a run, from the logs of all its workers: each once, as it was last taken."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from dragoman.events import StepDone
from dragoman.log_lines import LogLine, StepLine


class StepTimeline:
    """Takes the steps of all workers in the order of time."""

    def __init__(self) -> None:
        self._taken: dict[int, list[StepLine]] = defaultdict(list)
        """Steps of each worker that were not taken again."""
        self._recorded: dict[int, list[StepLine]] = defaultdict(list)
        """All steps of each worker."""
        self._warm_up: set[LogLine] = set()

    def add(self, line: StepLine, *, is_repeated: bool, is_warm_up: bool) -> None:
        recorded = self._recorded[line.worker]
        if recorded and recorded[-1].at_s == line.at_s:
            return  # Copied twice: the exchange is repeated if a worker is lost meanwhile.
        recorded.append(line)
        if is_warm_up:
            self._warm_up.add(line)
        if not is_repeated:
            self._taken[line.worker].append(line)

    def go_back(self, step: int) -> None:
        """Drop the steps after a step that the run went back to: they are taken again."""
        self._taken = defaultdict(
            list,
            {worker: [line for line in lines if line.step <= step] for worker, lines in self._taken.items()},
        )

    def is_warm_up(self, line: StepLine) -> bool:
        return line in self._warm_up

    def merge(self) -> list[StepLine]:
        """The steps of the worker with the most of them. Where they are not known, those of any other serve."""
        by_count = sorted(self._recorded, key=lambda worker: (-_count(self._recorded[worker]), worker))
        merged: list[StepLine] = []
        for worker in by_count:
            first_steps = [line.first_step for line in merged]
            for line in _without_overlaps(self._taken[worker]):
                before = bisect_right(first_steps, line.step) - 1
                if before < 0 or merged[before].step < line.first_step:
                    merged.append(line)
            merged.sort(key=lambda line: line.first_step)
        return merged

    def latest_by_worker(self, count: int) -> dict[int, list[StepDone]]:
        """The latest single steps of each worker, also those taken again later."""
        return {
            worker: [line.event for line in lines[-count:] if isinstance(line.event, StepDone)]
            for worker, lines in self._recorded.items()
        }


def _count(lines: Sequence[StepLine]) -> int:
    return sum(line.steps for line in lines)


def _without_overlaps(lines: Sequence[StepLine]) -> list[StepLine]:
    """Lines by step. Of those for the same step, the latest is kept."""
    kept: list[StepLine] = []
    for line in sorted(lines, key=lambda line: (line.first_step, line.at_s)):
        while kept and kept[-1].step >= line.first_step and kept[-1].at_s <= line.at_s:
            kept.pop()
        if not kept or kept[-1].step < line.first_step:
            kept.append(line)
    return kept
