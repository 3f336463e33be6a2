"""History of a run, built from the events of its workers: each step once, whatever was interrupted or repeated."""

from collections import Counter
from collections.abc import Iterable
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
"""First steps of a session. They compile, allocate memory and fill caches, so their times are not typical."""
WORKER_STEPS = 1000
"""Latest steps that are kept for each worker."""
NO_EVENT_S = 120.0
"""A run without events for this long, and for ten of its steps, counts as not responding."""
INCIDENTS = (
    events.RunStarted,
    events.WorldChanged,
    events.WorkersLost,
    events.CollectiveStalled,
    events.MessagesRejected,
    events.ExchangeChosen,
    events.CheckpointFailed,
    events.CheckpointRejected,
    events.CheckpointsAveraged,
    events.MicroBatchesSplit,
    events.StepSkipped,
    events.RolledBack,
    events.ReplicasDrifted,
    events.RunEnded,
)
"""Events that the report lists one by one."""


@dataclass
class RunHistory:
    """Everything known about a run. Lists are ordered by time; steps, evaluations and checkpoints by step."""

    sessions: list[events.RunStarted] = field(default_factory=list)
    session_spans_s: list[tuple[float, float]] = field(default_factory=list)
    """Times of the first and the latest event of each session."""
    ended: events.RunEnded | None = None
    """End of the last session; None while it runs, or if it was killed."""
    steps: list[StepDone] = field(default_factory=list)
    """Steps of the worker with the most of them. A repeated step is here once, as it was last taken."""
    steady_steps: list[StepDone] = field(default_factory=list)
    """The same without the warm-up steps of each session."""
    worker_steps: dict[int, list[StepDone]] = field(default_factory=dict)
    """Latest known steps of each worker. Only some steps of other machines' workers are known here."""
    evaluations: list[events.EvaluationDone] = field(default_factory=list)
    checkpoints: list[events.CheckpointSaved] = field(default_factory=list)
    host_readings: dict[str, list[events.HostSampled]] = field(default_factory=dict)
    """Sensor readings by host."""
    peak_flops_per_s: dict[int, float] = field(default_factory=dict)
    """Measured peak of each worker's device."""
    data: events.DataOpened | None = None
    exchange: events.ExchangeChosen | None = None
    """The exchange method in use, if it was chosen automatically."""
    incidents: list[Event] = field(default_factory=list)

    @property
    def started(self) -> events.RunStarted:
        """Start of the last session."""
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
        """The latest workers by rank, as in `worker 1 on b`."""
        worlds = [
            event.workers for event in self.incidents if isinstance(event, events.RunStarted | events.WorldChanged)
        ]
        return worlds[-1]

    @property
    def hosts(self) -> list[str]:
        """Hosts in the order of their first workers."""
        hosts = [worker.rpartition(" on ")[2] for worker in self.workers]
        return list(dict.fromkeys(hosts)) or [self.started.host]

    @property
    def elapsed_s(self) -> float:
        """Wall time of all sessions, without the time between them."""
        return sum(last - first for first, last in self.session_spans_s)

    def setting(self, section: str, name: str) -> Any:
        """A setting of the run; None if the run was recorded before that setting existed."""
        return self.started.settings.get(section, {}).get(name)

    def incidents_of(self, kind: type[E]) -> list[E]:
        return [event for event in self.incidents if isinstance(event, kind)]

    def state(self, now_s: float) -> str:
        """`running`, `not responding` (probably killed), or the reason why the run ended."""
        if self.ended is not None:
            return "stopped early" if self.ended.reason == "patience" else self.ended.reason
        step_s = fmean(step.step_s for step in self.steps[-20:]) if self.steps else 0.0
        quiet_s = now_s - self.session_spans_s[-1][1]
        return "running" if quiet_s < max(NO_EVENT_S, 10 * step_s) else "not responding"


class RunLogReader:
    """Reads the event logs of a run folder incrementally."""

    def __init__(self, path: Path) -> None:
        if not RunFolder(path).config.exists():
            raise DragomanError(f"{path} is not a run: pass the directory that `dragoman train` got with --out.")
        self._path = path
        self._read_bytes: dict[Path, int] = {}
        self._events: list[Event] = []

    def read_new(self) -> bool:
        """Read the events written since the last call. Returns False if there are none."""
        known = len(self._events)
        for log in sorted(self._path.glob("events-*.jsonl")):
            found, self._read_bytes[log] = read_events(log, self._read_bytes.get(log, 0))
            self._events += found
        return len(self._events) > known

    def history(self) -> RunHistory:
        """The history of the events read so far."""
        history = build_history(self._events)
        if not history.sessions:
            raise DragomanError(f"{self._path} has not started training yet: wait for its first step.")
        return history


def read_history(path: Path) -> RunHistory:
    """The history of the run in a folder."""
    reader = RunLogReader(path)
    reader.read_new()
    return reader.history()


def build_history(recorded: Iterable[Event]) -> RunHistory:
    """Build the history from the events of any number of workers, in any order."""
    ordered = sorted(recorded, key=lambda event: event.at_s)
    step_counts = Counter(event.worker for event in ordered if isinstance(event, StepDone))
    primary_worker = min(step_counts, key=lambda worker: (-step_counts[worker], worker), default=0)
    builder = _HistoryBuilder(primary_worker)
    for event in ordered:
        builder.add(event)
    return builder.build()


class _HistoryBuilder:
    """Adds events in the order of time. The run's own events are taken from its primary worker alone."""

    def __init__(self, primary_worker: int) -> None:
        self._primary_worker = primary_worker
        self._history = RunHistory()
        self._steps: dict[int, StepDone] = {}
        self._steady_steps: dict[int, StepDone] = {}
        self._evaluations: dict[int, events.EvaluationDone] = {}
        self._checkpoints: dict[int, events.CheckpointSaved] = {}
        self._warm_up_end = 0

    def add(self, event: Event) -> None:
        history = self._history
        match event:
            case events.HostSampled():
                history.host_readings.setdefault(event.host, []).append(event)
            case events.PeakMeasured():
                history.peak_flops_per_s[event.worker] = event.flops_per_s
            case events.CheckpointSaved():
                self._checkpoints[event.step] = event  # Two workers may have saved the same one.
            case StepDone():
                history.worker_steps.setdefault(event.worker, []).append(event)
        # Sensors and the peak are recorded before the session starts.
        if event.worker == self._primary_worker and not isinstance(event, events.HostSampled | events.PeakMeasured):
            self._add_primary(event)
        # Only the worker whose batch was split records it.
        elif isinstance(event, events.MicroBatchesSplit):
            history.incidents.append(event)

    def _add_primary(self, event: Event) -> None:
        history = self._history
        if isinstance(event, events.RunStarted):
            history.sessions.append(event)
            history.session_spans_s.append((event.at_s, event.at_s))
            history.ended = None
            self._drop_after(event.resumed_step)
            self._warm_up_end = event.resumed_step + WARM_UP_STEPS
        elif history.session_spans_s:
            history.session_spans_s[-1] = (history.session_spans_s[-1][0], event.at_s)
        match event:
            case StepDone():
                self._steps[event.step] = event
                if event.step > self._warm_up_end:
                    self._steady_steps[event.step] = event
            case events.EvaluationDone():
                self._evaluations[event.step] = event
            case events.RolledBack():
                self._drop_after(event.to_step)
            case events.DataOpened():
                history.data = event
            case events.ExchangeChosen():
                history.exchange = event
            case events.RunEnded():
                history.ended = event
        if isinstance(event, INCIDENTS):
            history.incidents.append(event)

    def _drop_after(self, step: int) -> None:
        """Drop what came after a step that the run went back to: it is trained again."""
        records: tuple[dict[int, Any], ...] = (self._steps, self._steady_steps, self._evaluations)
        for record in records:
            for later in [number for number in record if number > step]:
                del record[later]

    def build(self) -> RunHistory:
        history = self._history
        history.steps, history.evaluations = _by_step(self._steps), _by_step(self._evaluations)
        history.checkpoints = _by_step(self._checkpoints)
        history.steady_steps = _by_step(self._steady_steps) or history.steps
        history.worker_steps = {worker: steps[-WORKER_STEPS:] for worker, steps in history.worker_steps.items()}
        return history


def _by_step(record: dict[int, E]) -> list[E]:
    return [record[step] for step in sorted(record)]
