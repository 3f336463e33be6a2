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
from dragoman.telemetry.remaining_time import WARM_UP_STEPS
from dragoman.telemetry.worker_losses import LossTracker, worker_name

E = TypeVar("E", bound=Event)

WORKER_STEPS = 1000
"""Latest steps that are kept for each worker."""
NO_EVENT_S = 120.0
"""A run without events for this long, and for ten of its steps, counts as not responding."""
INCIDENTS = (
    events.RunStarted,
    events.WorldChanged,
    events.WorkersLost,
    events.WorkerFailed,
    events.CollectiveStalled,
    events.MessagesRejected,
    events.ExchangeChosen,
    events.CheckpointFailed,
    events.CheckpointSkipped,
    events.CheckpointRejected,
    events.CheckpointsAveraged,
    events.MicroBatchesSplit,
    events.StepSkipped,
    events.RolledBack,
    events.ReplicasDrifted,
    events.RunEnded,
)
"""Events that the report lists one by one."""


@dataclass(frozen=True)
class WorkerLoss:
    """A worker that was lost, with the last step before."""

    worker: str
    """Such as `worker 1 on b`."""
    step: int
    at_s: float
    reason: str


@dataclass
class RunHistory:
    """Everything known about a run. Lists are ordered by time; steps, evaluations and checkpoints by step."""

    sessions: list[events.RunStarted] = field(default_factory=list)
    session_spans_s: list[tuple[float, float]] = field(default_factory=list)
    """Times of the first and the latest event of each session."""
    ended: events.RunEnded | None = None
    """End of the last session; None while it runs, or if it was killed."""
    failed: events.WorkerFailed | None = None
    """The error that ended the last session, if any."""
    workers: list[str] = field(default_factory=list)
    """The latest workers by rank, as in `worker 1 on b`."""
    losses: list[WorkerLoss] = field(default_factory=list)
    step: int = 0
    """The last step."""
    steps: list[StepDone] = field(default_factory=list)
    """Steps of the worker with the most of them, and where it was absent, those known of others. A repeated step is
    here once, as it was last taken."""
    steady_steps: list[StepDone] = field(default_factory=list)
    """The same without the warm-up steps of each session."""
    worker_steps: dict[int, list[StepDone]] = field(default_factory=dict)
    """Latest known steps of each worker. Only some steps of other machines' workers are known here."""
    evaluations: list[events.EvaluationDone] = field(default_factory=list)
    checkpoints: list[events.CheckpointSaved] = field(default_factory=list)
    host_readings: dict[str, list[events.HostSampled]] = field(default_factory=dict)
    """Sensor readings by host."""
    peaks: dict[int, events.PeakMeasured] = field(default_factory=dict)
    """Latest measured peak of each worker's device."""
    data: events.DataOpened | None = None
    exchange: events.ExchangeChosen | None = None
    """The exchange method in use, if it was chosen automatically."""
    incidents: list[Event] = field(default_factory=list)

    @property
    def started(self) -> events.RunStarted:
        """Start of the last session, as its first worker recorded it."""
        return self.sessions[-1]

    @property
    def name(self) -> str:
        return self.started.run

    @property
    def total_steps(self) -> int:
        return self.started.total_steps

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
        """`running`, `failed`, `not responding` (probably killed), or the reason why the run ended."""
        if self.ended is not None:
            return "stopped early" if self.ended.reason == "patience" else self.ended.reason
        if self.failed is not None:
            return "failed"
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
        for log in RunFolder(self._path).event_logs():
            found, self._read_bytes[log] = read_events(log, self._read_bytes.get(log, 0))
            self._events += found
        return len(self._events) > known

    def history_so_far(self) -> RunHistory:
        """The history of the events read so far, even if there are none."""
        return build_history(self._events)

    def history(self) -> RunHistory:
        """The history of the events read so far, of a run that has started."""
        history = self.history_so_far()
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
    """Merges the events of all workers, in the order of time. What all workers record counts once."""

    def __init__(self, primary_worker: int) -> None:
        self._primary_worker = primary_worker
        self._history = RunHistory()
        self._steps: dict[int, StepDone] = {}
        self._steady_steps: dict[int, StepDone] = {}
        self._evaluations: dict[int, events.EvaluationDone] = {}
        self._checkpoints: dict[int, events.CheckpointSaved] = {}
        self._warm_up_end = 0
        self._losses = LossTracker()
        self._session_at_s = 0.0
        self._merged: set[tuple[object, ...]] = set()
        """Incidents since the session started or rolled back, without the time and worker."""

    def add(self, event: Event) -> None:
        history = self._history
        match event:
            case events.HostSampled():
                _append_once(history.host_readings.setdefault(event.host, []), event)
            case events.PeakMeasured():
                history.peaks[event.worker] = event
            case events.RunStarted():
                self._add_start(event)
            case StepDone():
                self._add_step(event)
            case events.EvaluationDone():
                self._evaluations[event.step] = event
            case events.CheckpointSaved():
                self._checkpoints[event.step] = event
            case events.DataOpened():
                history.data = event
            case events.WorkersLost() | events.WorldChanged():
                self._add_world_change(event)
            case _:
                self._add_incident(event)
        # Sensors and the peak are recorded before the session starts.
        if not isinstance(event, events.HostSampled | events.PeakMeasured):
            self._extend_session(event)

    def _add_start(self, event: events.RunStarted) -> None:
        """Start a session, unless this worker joins one. In older logs, only the first worker of a world starts one."""
        history = self._history
        if event.session_at_s:
            is_first = event.session_at_s != self._session_at_s
        else:
            is_first = not history.sessions or event.workers[:1] == [f"worker {event.worker} on {event.host}"]
        if not is_first:
            self._add_world_change(event)
            return
        self._close_session()
        self._session_at_s = event.session_at_s
        self._losses.add(event)
        history.sessions.append(event)
        history.session_spans_s.append((event.session_at_s or event.at_s, event.at_s))
        history.ended = history.failed = None
        history.workers = event.workers
        history.incidents.append(event)
        self._go_back(event.resumed_step)
        self._warm_up_end = event.resumed_step + WARM_UP_STEPS

    def _extend_session(self, event: Event) -> None:
        spans = self._history.session_spans_s
        if spans and (self._history.ended is None or isinstance(event, events.RunEnded)):
            spans[-1] = (spans[-1][0], max(spans[-1][1], event.at_s))

    def _add_step(self, event: StepDone) -> None:
        """Add a step. Where the primary worker's record is not known, any other serves."""
        history = self._history
        _append_once(history.worker_steps.setdefault(event.worker, []), event)
        history.step = max(history.step, event.step)
        if history.failed is not None and event.step > history.failed.step + 1:
            history.failed = None  # An elastic run has continued without the failed worker.
        if event.worker == self._primary_worker or event.step not in self._steps:
            self._steps[event.step] = event
            if event.step > self._warm_up_end:
                self._steady_steps[event.step] = event

    def _add_world_change(self, event: events.RunStarted | events.WorkersLost | events.WorldChanged) -> None:
        history, before = self._history, self._losses.world
        if (loss := self._losses.add(event)) is not None:
            history.incidents.append(loss)
            history.losses += [
                WorkerLoss(worker_name(worker), loss.step, loss.at_s, loss.reason) for worker in loss.workers
            ]
        history.workers = self._losses.world
        if isinstance(event, events.WorldChanged) and event.workers != before:
            history.incidents.append(event)
            history.step = max(history.step, event.step)

    def _add_incident(self, event: Event) -> None:
        """Add what the report lists one by one. All workers record it at nearly the same time."""
        if not isinstance(event, INCIDENTS) or (key := _merge_key(event)) in self._merged:
            return
        history = self._history
        match event:
            case events.RolledBack():
                self._go_back(event.to_step)
            case events.ExchangeChosen():
                history.exchange = event
            case events.WorkerFailed() if history.ended is None:
                history.failed = event
            case events.RunEnded():
                history.ended, history.step = event, event.step
        self._merged.add(key)
        history.incidents.append(event)

    def _go_back(self, step: int) -> None:
        """Drop what came after a step that the run went back to: it is trained again."""
        records: tuple[dict[int, Any], ...] = (self._steps, self._steady_steps, self._evaluations)
        for record in records:
            for later in [number for number in record if number > step]:
                del record[later]
        self._history.step = step
        self._merged.clear()

    def _close_session(self) -> None:
        """List a loss of which nobody knows who was lost."""
        if self._losses.unexplained is not None:
            self._history.incidents.append(self._losses.unexplained)
        self._losses = LossTracker()

    def build(self) -> RunHistory:
        history = self._history
        self._close_session()
        history.steps, history.evaluations = _by_step(self._steps), _by_step(self._evaluations)
        history.checkpoints = _by_step(self._checkpoints)
        history.steady_steps = _by_step(self._steady_steps) or history.steps
        history.worker_steps = {worker: steps[-WORKER_STEPS:] for worker, steps in history.worker_steps.items()}
        return history


def _merge_key(event: Event) -> tuple[object, ...]:
    """Equal for the records of all workers about the same incident."""
    match event:
        case events.MicroBatchesSplit() | events.WorkerFailed():  # Each worker's own.
            return (type(event), event.worker, event.at_s)
        case events.RunEnded():
            return (type(event),)
        case events.ExchangeChosen():
            return (type(event), event.step, event.method, event.every)
        case events.CheckpointRejected():
            return (type(event), event.name)
        case events.RolledBack():
            return (type(event), event.from_step)
    return (type(event), getattr(event, "step", None))


def _append_once(ordered: list[E], event: E) -> None:
    """Append an event that may have been copied twice: the exchange is repeated if a worker is lost meanwhile."""
    if not ordered or ordered[-1].at_s != event.at_s:
        ordered.append(event)


def _by_step(record: dict[int, E]) -> list[E]:
    return [record[step] for step in sorted(record)]
