"""Thinning of event logs: their size is bounded, whatever the length of the run, and reports stay the same.

The latest steps and those around incidents stay as they are. Earlier ones are summed in blocks of neighbours, whose
size doubles as the log grows. Writers thin their logs from time to time, and readers what they read, by the same rule:
`thin(thin(a) + b) == thin(a + b)`. So it does not matter to a report when a log was thinned, or whether it ever was.

For this, blocks are counted from the first step of the log, and each is the sum of its halves. Steps are never summed
across other events, evaluations, checkpoints, or the point to which a run went back: each of them is still counted
once, as it was last taken.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dragoman.events import (
    CheckpointSaved,
    DataOpened,
    EvaluationDone,
    HostSampled,
    PeakMeasured,
    RunStarted,
    SharesChanged,
    StepDone,
    StepsSummed,
)
from dragoman.log_lines import LogLine, StepLine, find_repeated, line_of
from dragoman.step_sums import add_sums, as_sum

WHOLE_STEPS = 4096
"""Latest steps of a worker that are never summed."""
MAX_SPANS = 8192
"""Sums for all steps before, without those that end early at an event: ten for each point of a curve."""
NEAR_STEPS = 20
"""Steps before and after an incident that are never summed, among them the warm-up steps of a session."""
WHOLE_READINGS = 512
"""Latest sensor readings of a host that are all kept."""
MAX_READINGS = 1024
"""Readings that are kept of those before."""
ORDINARY = (EvaluationDone, CheckpointSaved, DataOpened, PeakMeasured)
"""Events between steps that are no incidents."""
UNRELATED = (HostSampled, SharesChanged)
"""Events across which steps are summed."""


@dataclass(slots=True)
class _Entry:
    """A line that may be merged with its neighbour."""

    place: int
    """Place of the line in the log; of merged lines, that of the last."""
    start: int
    """How many steps or readings of the log come before."""
    count: int
    group: int | None
    """Only neighbours of the same group are merged; none at all if it is None."""
    line: LogLine


def thin(lines: Sequence[LogLine]) -> list[LogLine]:
    """The lines of one worker's log, with sums in place of most of the past. See the top of this module."""
    steps = _merge_past(_list_steps(lines), WHOLE_STEPS, MAX_SPANS, _add_steps)
    readings = [
        entry
        for of_host in _list_readings(lines)
        for entry in _merge_past(of_host, WHOLE_READINGS, MAX_READINGS, _keep_earlier)
    ]
    others = [
        _Entry(place, 0, 0, None, line)
        for place, line in enumerate(lines)
        if not isinstance(line, StepLine) and not isinstance(line.event, HostSampled)
    ]
    return [entry.line for entry in sorted([*steps, *readings, *others], key=lambda entry: entry.place)]


def find_stage(lines: Sequence[LogLine]) -> tuple[int, ...]:
    """Changes whenever there is something new to merge."""
    steps, readings = 0, Counter[str]()
    for line in lines:
        if isinstance(line, StepLine):
            steps += line.steps
        elif isinstance(line.event, HostSampled):
            readings[line.event.host] += line.event.samples
    return steps // WHOLE_STEPS, *(count // WHOLE_READINGS for count in readings.values())


def _merge_past(
    entries: list[_Entry], whole: int, max_blocks: int, join: Callable[[LogLine, LogLine], LogLine | None]
) -> list[_Entry]:
    """Merge all entries but the latest in blocks of a power of two, as large as the number of blocks demands.

    Between `whole` and twice as many entries stay as they are.
    """
    total = entries[-1].start + entries[-1].count if entries else 0
    past = (total // whole - 1) * whole
    cut = bisect_right(entries, past, key=lambda entry: entry.start + entry.count)
    merged, latest = entries[:cut], entries[cut:]
    size = 2
    while max_blocks * size < 2 * past:
        merged = _merge_blocks(merged, size, join)
        size *= 2
    return merged + latest


def _merge_blocks(entries: list[_Entry], size: int, join: Callable[[LogLine, LogLine], LogLine | None]) -> list[_Entry]:
    """Merge the two halves of each block."""
    merged: list[_Entry] = []
    for entry in entries:
        if merged and (before := merged[-1]).group == entry.group is not None:
            is_same_block = before.start // size == (entry.start + entry.count - 1) // size
            if is_same_block and (line := join(before.line, entry.line)) is not None:
                merged[-1] = _Entry(entry.place, before.start, before.count + entry.count, entry.group, line)
                continue
        merged.append(entry)
    return merged


def _list_steps(lines: Sequence[LogLine]) -> list[_Entry]:
    """The steps of a log. A group ends wherever a sum must not go on."""
    repeated = find_repeated(lines)
    incidents = _find_incidents(lines)
    entries: list[_Entry] = []
    group, start = 0, 0
    every: tuple[int, ...] = ()
    before: StepLine | None = None
    for place, line in enumerate(lines):
        if isinstance(line, StepLine):
            if before is not None and (
                line.first_step <= before.step
                or any((line.first_step - 1) // n > (before.step - 1) // n for n in every)
                or (line in repeated) != (before in repeated)
            ):
                group += 1
            incident = bisect_left(incidents, start - NEAR_STEPS + 1)
            is_near = incident < len(incidents) and incidents[incident] <= start + NEAR_STEPS
            entries.append(_Entry(place, start, line.steps, None if is_near else group, line))
            start += line.steps
            before = line
        elif not isinstance(line.event, UNRELATED):
            group += 1
            if isinstance(line.event, RunStarted):
                every = _intervals(line.event)
    return entries


def _find_incidents(lines: Sequence[LogLine]) -> list[int]:
    """The number of steps before each incident. Unknown events of newer versions count as such."""
    found, steps = [], 0
    for line in lines:
        if isinstance(line, StepLine):
            steps += line.steps
        elif not isinstance(line.event, ORDINARY + UNRELATED):
            found.append(steps)
    return found


def _intervals(started: RunStarted) -> tuple[int, ...]:
    """Steps between evaluations and between checkpoints. Not every worker records checkpoints, but all resume."""
    sections = (started.settings.get(section, {}) for section in ("evaluation", "checkpoint"))
    return tuple(section["every"] for section in sections if section.get("every"))


def _list_readings(lines: Sequence[LogLine]) -> Iterator[list[_Entry]]:
    """The sensor readings of each host."""
    by_host: dict[str, list[_Entry]] = defaultdict(list)
    for place, line in enumerate(lines):
        if not isinstance(line, StepLine) and isinstance(line.event, HostSampled):
            entries = by_host[line.event.host]
            start = entries[-1].start + entries[-1].count if entries else 0
            entries.append(_Entry(place, start, line.event.samples, 0, line))
    yield from by_host.values()


def _add_steps(earlier: LogLine, later: LogLine) -> LogLine | None:
    """The sum of two lines; None if one is damaged."""
    first, second = earlier.event, later.event
    if not isinstance(first, StepDone | StepsSummed) or not isinstance(second, StepDone | StepsSummed):
        return None
    return line_of(add_sums(as_sum(first), as_sum(second)))


def _keep_earlier(earlier: LogLine, later: LogLine) -> LogLine:
    """The earlier of two readings, which stands for both."""
    first, second = earlier.event, later.event
    assert isinstance(first, HostSampled)
    assert isinstance(second, HostSampled)
    return line_of(replace(first, samples=first.samples + second.samples))
