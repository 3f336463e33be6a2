"""The lines of event logs. Those of steps are parsed only where their numbers are needed: a long run has very many."""

import re
from collections.abc import Iterable

from dragoman.event_json import from_json, to_json
from dragoman.events import Event, StepDone, StepsSummed

_STEP = re.compile(
    rb'\{"event":"step(?:_done|s_summed)","at_s":([0-9.eE+-]+),"worker":(\d+),'
    rb'(?:"first_step":(\d+),"steps":(\d+),)?"step":(\d+),'
)
"""The beginning of a step's line, as `to_json` writes it."""


class LogLine:
    """A line of a log: its text, its event, or both."""

    __slots__ = ("_event", "_text")

    def __init__(self, text: bytes | None, event: Event | None) -> None:
        self._text, self._event = text, event

    @property
    def text(self) -> bytes:
        """The line without its end."""
        if self._text is None:
            assert self._event is not None
            self._text = to_json(self._event).encode()
        return self._text

    @property
    def event(self) -> Event | None:
        """None if the line is damaged or of another version."""
        if self._event is None and self._text is not None:
            self._event = from_json(self._text)
        return self._event

    @property
    def at_s(self) -> float | None:
        return None if self.event is None else self.event.at_s


class StepLine(LogLine):
    """The line of a step, or of a sum of steps."""

    __slots__ = ("_at_s", "first_step", "step", "steps", "worker")

    def __init__(
        self, text: bytes | None, event: Event | None, at_s: float, worker: int, first_step: int, steps: int, step: int
    ) -> None:
        super().__init__(text, event)
        self._at_s, self.worker = at_s, worker
        self.first_step, self.steps, self.step = first_step, steps, step

    @property
    def at_s(self) -> float:
        return self._at_s


def parse_line(text: bytes) -> LogLine:
    """The line of a text."""
    found = _STEP.match(text)
    if found is None:
        event = from_json(text)
        return LogLine(text, None) if event is None else line_of(event, text)
    at_s, worker, first_step, steps, step = found.groups()
    return StepLine(text, None, float(at_s), int(worker), int(first_step or step), int(steps or 1), int(step))


def line_of(event: Event, text: bytes | None = None) -> LogLine:
    """The line of an event."""
    match event:
        case StepDone():
            return StepLine(text, event, event.at_s, event.worker, event.step, 1, event.step)
        case StepsSummed():
            return StepLine(text, event, event.at_s, event.worker, event.first_step, event.steps, event.step)
    return LogLine(text, event)


def find_repeated(lines: Iterable[LogLine]) -> set[LogLine]:
    """The lines of one worker's steps that were taken again later, after the run went back.

    A line that is older than those before it was copied late from another machine: it repeats nothing.
    """
    in_order: list[StepLine] = []
    latest_s = float("-inf")
    for line in lines:
        if isinstance(line, StepLine) and line.at_s >= latest_s:
            latest_s = line.at_s
            in_order.append(line)
    repeated = set[LogLine]()
    next_step = float("inf")
    for line in reversed(in_order):
        if line.step >= next_step:
            repeated.add(line)
        next_step = min(next_step, line.first_step)
    return repeated
