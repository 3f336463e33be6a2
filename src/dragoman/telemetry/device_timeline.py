"""The time line of a GPU: events in its stream where the part of a step changes, read once the GPU has passed them.

A GPU works through its stream asynchronously. Between two events it worked on what was queued between them, or was idle
because nothing was queued yet. So the spans between successive events sum to the wall time, and no one waits for them.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from dragoman.telemetry.step_parts import PARTS, Part


class DeviceEvent(Protocol):
    """The part of `torch.cuda.Event` that a time line needs."""

    def record(self) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds until a later event."""
        ...


class _Mark(NamedTuple):
    part: Part
    """The part that begins here."""
    event: DeviceEvent


class DeviceSpans:
    """Successive spans of a GPU's time, and the part of a step that each belongs to."""

    def __init__(self, marks: Sequence[_Mark], free: list[DeviceEvent]) -> None:
        self._marks = list(marks)
        self._free = free

    def extend(self, following: "DeviceSpans") -> None:
        """Append the spans that begin where these end."""
        self._marks += following._marks[1:]

    def read(self) -> dict[Part, float]:
        """Seconds of each part. Waits until the GPU has passed the last span. Call it once: the events are reused."""
        self._marks[-1].event.synchronize()
        spent_s: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        for part, seconds in _measure(self._marks):
            spent_s[part] += seconds
        self._free += [mark.event for mark in self._marks[:-1]]  # The following spans begin with the last one.
        return spent_s


class DeviceTimeline:
    """Divides the time of a GPU into parts of steps."""

    def __init__(self, make_event: Callable[[], DeviceEvent]) -> None:
        self._make_event = make_event
        self._free: list[DeviceEvent] = []
        self._marks = [self._mark("outside")]
        self.last_compute_s = 0.0
        """Compute time of the last step that the GPU had computed when it was taken, and in which nothing was compiled;
        0 before."""

    def enter(self, part: Part) -> None:
        """What is queued from now on belongs to this part."""
        self._marks.append(self._mark(part))

    def take(self) -> DeviceSpans:
        """The spans since the last call."""
        part = self._marks[-1].part
        self.enter(part)
        marks, self._marks = self._marks, self._marks[-1:]
        self._note_compute(marks)
        return DeviceSpans(marks, self._free)

    def _mark(self, part: Part) -> _Mark:
        event = self._free.pop() if self._free else self._make_event()
        event.record()
        return _Mark(part, event)

    def _note_compute(self, marks: Sequence[_Mark]) -> None:
        computed = [pair for pair in pairwise(marks) if pair[0].part == "compute"]
        compiled = any(mark.part == "compile" for mark in marks)
        if computed and not compiled and computed[-1][1].event.query():
            self.last_compute_s = sum(_span_s(*pair) for pair in computed)


def _measure(marks: Sequence[_Mark]) -> Iterator[tuple[Part, float]]:
    return ((begin.part, _span_s(begin, end)) for begin, end in pairwise(marks))


def _span_s(begin: _Mark, end: _Mark) -> float:
    return begin.event.elapsed_time(end.event) / 1000


def timeline_of(device: torch.device) -> DeviceTimeline | None:
    """The time line of a GPU; None for a CPU, whose time is that of its clock."""
    if device.type != "cuda":
        return None
    return DeviceTimeline(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
