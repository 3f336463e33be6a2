"""A run as its events tell it, put in order: one line of steps whatever was interrupted, lost or taken again."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from dragoman import events
from dragoman.errors import DragomanError
from dragoman.event_log import read_events
from dragoman.events import Event, StepDone
from dragoman.run_folder import RunFolder

E = TypeVar("E", bound=Event)

WARM_UP_STEPS = 5
"""First steps of a session, which compile, allocate and fill caches, and say little about the others."""
LATEST_STEPS = 1000
"""Of each worker, that its part in the steps is told by."""
SILENT_S = 120.0
"""A run that has said nothing for so long, and for ten of its steps, no longer runs."""
INCIDENTS = (
    events.RunStarted,
    events.WorldChanged,
    events.WorkersLost,
    events.CollectiveStalled,
    events.ExchangeChosen,
    events.CheckpointFailed,
    events.CheckpointRejected,
    events.CheckpointsAveraged,
    events.MicroBatchesSplit,
    events.StepSkipped,
    events.RolledBack,
    events.RunEnded,
)
"""What a person would want to see in a list of what happened."""


@dataclass
class RunHistory:
    """What is known of a run. Lists are in the order of time; steps and evaluations in that of steps."""

    sessions: list[events.RunStarted] = field(default_factory=list)
    ended: events.RunEnded | None = None
    """How the last session ended; None while it runs, or where it was killed."""
    steps: list[StepDone] = field(default_factory=list)
    """Of the worker that tells most, each step once: as it was last taken."""
    steady: list[StepDone] = field(default_factory=list)
    """The same without the first ones of each session."""
    steps_of: dict[int, list[StepDone]] = field(default_factory=dict)
    """The latest steps of each worker, as far as its events have come here: of other machines' not all do."""
    evaluations: list[events.EvaluationDone] = field(default_factory=list)
    checkpoints: list[events.CheckpointSaved] = field(default_factory=list)
    sensed: dict[str, list[events.HostSampled]] = field(default_factory=dict)
    """By host."""
    ceilings: dict[int, float] = field(default_factory=dict)
    """Operations a second of each worker's device."""
    data: events.DataOpened | None = None
    exchange: events.ExchangeChosen | None = None
    """How gradients are exchanged now, where that was said."""
    incidents: list[Event] = field(default_factory=list)
    spans_s: list[tuple[float, float]] = field(default_factory=list)
    """When each session began, and when it was last heard of."""

    @property
    def started(self) -> events.RunStarted:
        """The last session's start."""
        return self.sessions[-1]

    @property
    def name(self) -> str:
        return self.started.run

    @property
    def step(self) -> int:
        return self.steps[-1].step if self.steps else 0

    @property
    def total_steps(self) -> int:
        return self.started.total_steps

    @property
    def workers(self) -> list[str]:
        """By rank of the last world, as in `worker 1 on b`."""
        worlds = [
            event.workers for event in self.incidents if isinstance(event, events.RunStarted | events.WorldChanged)
        ]
        return worlds[-1]

    @property
    def hosts(self) -> list[str]:
        """In the order of their first workers."""
        named = [worker.rpartition(" on ")[2] for worker in self.workers]
        return list(dict.fromkeys(named)) or [self.started.host]

    @property
    def elapsed_s(self) -> float:
        """Wall time of all sessions; what lay between them does not count."""
        return sum(last - first for first, last in self.spans_s)

    def setting(self, section: str, name: str) -> Any:
        """A setting of the run, or None where it is older than the setting."""
        return self.started.settings.get(section, {}).get(name)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.incidents if isinstance(event, kind)]

    def state(self, now_s: float) -> str:
        """`running`, why it ended, or `silent` where it must have been killed."""
        if self.ended is not None:
            return self.ended.reason
        step_s = fmean(step.step_s for step in self.steps[-20:]) if self.steps else 0.0
        return "running" if now_s - self.spans_s[-1][1] < max(SILENT_S, 10 * step_s) else "silent"


class Logs:
    """The logs of a run's folder, read as far as they are written."""

    def __init__(self, path: Path) -> None:
        if not RunFolder(path).config.exists():
            raise DragomanError(f"{path} is no run: give the folder that `dragoman train` was given with --out.")
        self._path = path
        self._read_bytes: dict[Path, int] = {}
        self._events: list[Event] = []

    def refresh(self) -> bool:
        """Read what was written since the last time. Says whether there was anything."""
        known = len(self._events)
        for log in sorted(self._path.glob("events-*.jsonl")):
            found, self._read_bytes[log] = read_events(log, self._read_bytes.get(log, 0))
            self._events += found
        return len(self._events) > known

    def story(self) -> RunHistory:
        story = tell(self._events)
        if not story.sessions:
            raise DragomanError(f"{self._path} has not begun to train yet: wait for its first step.")
        return story


def read_history(path: Path) -> RunHistory:
    """The story of a run's folder, as it stands."""
    logs = Logs(path)
    logs.refresh()
    return logs.story()


def tell(happened: Iterable[Event]) -> RunHistory:
    """Put events of any number of workers in order."""
    ordered = sorted(happened, key=lambda event: event.at_s)
    taken = Counter(event.worker for event in ordered if isinstance(event, StepDone))
    teller = min(taken, key=lambda rank: (-taken[rank], rank), default=0)
    story = RunHistory()
    steps: dict[int, StepDone] = {}
    evaluations: dict[int, events.EvaluationDone] = {}
    checkpoints: dict[int, events.CheckpointSaved] = {}
    warm_from = 0
    steady: dict[int, StepDone] = {}
    for event in ordered:
        _note(story, event, checkpoints)
        # Sensors and ceilings may speak before a session begins; only the worker that was cut knows of it.
        if event.worker != teller or isinstance(event, events.HostSampled | events.PeakMeasured):
            if isinstance(event, events.MicroBatchesSplit):
                story.incidents.append(event)
            continue
        if isinstance(event, events.RunStarted):
            story.sessions.append(event)
            story.spans_s.append((event.at_s, event.at_s))
            story.ended = None
            _forget_after(event.resumed_step, steps, steady, evaluations)
            warm_from = event.resumed_step + WARM_UP_STEPS
        elif story.spans_s:
            story.spans_s[-1] = (story.spans_s[-1][0], event.at_s)
        match event:
            case StepDone():
                steps[event.step] = event
                if event.step > warm_from:
                    steady[event.step] = event
            case events.EvaluationDone():
                evaluations[event.step] = event
            case events.RolledBack():
                _forget_after(event.to_step, steps, steady, evaluations)
            case events.DataOpened():
                story.data = event
            case events.ExchangeChosen():
                story.exchange = event
            case events.RunEnded():
                story.ended = event
        if isinstance(event, INCIDENTS):
            story.incidents.append(event)
    story.steps, story.evaluations = _in_order(steps), _in_order(evaluations)
    story.checkpoints = _in_order(checkpoints)
    story.steady = _in_order(steady) or story.steps
    story.steps_of = {rank: latest[-LATEST_STEPS:] for rank, latest in story.steps_of.items()}
    return story


def _note(story: RunHistory, event: Event, checkpoints: dict[int, events.CheckpointSaved]) -> None:
    """What any worker may tell."""
    match event:
        case events.HostSampled():
            story.sensed.setdefault(event.host, []).append(event)
        case events.PeakMeasured():
            story.ceilings[event.worker] = event.flops_per_s
        case events.CheckpointSaved():
            checkpoints[event.step] = event  # Two workers may have kept the same one.
        case StepDone():
            story.steps_of.setdefault(event.worker, []).append(event)


def _forget_after(step: int, *records: dict[int, Any]) -> None:
    """What came after a step that the run went back to did not count."""
    for record in records:
        for later in [number for number in record if number > step]:
            del record[later]


def _in_order(record: dict[int, E]) -> list[E]:
    return [record[step] for step in sorted(record)]


def mean_of(steps: Sequence[StepDone], name: str) -> float:
    """The mean of a field over steps."""
    return fmean(getattr(step, name) for step in steps) if steps else 0.0
