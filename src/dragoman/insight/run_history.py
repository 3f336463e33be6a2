"""History of a run, built from the events of its workers: each step once, whatever was interrupted or repeated."""

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from dragoman import events
from dragoman.errors import DragomanError
from dragoman.events import Event, StepDone, StepsSummed
from dragoman.insight.step_timeline import StepTimeline
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.log_lines import LogLine, StepLine, find_repeated, line_of
from dragoman.log_reader import ThinningReader
from dragoman.log_thinning import thin
from dragoman.run_folder import RunFolder, hint_at_runs
from dragoman.step_sums import as_sum
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
    WorkersLate,
    LateStepsMerged,
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
    spans: list[StepsSummed] = field(default_factory=list)
    """All steps, in order: sums over spans of the long past, then single steps as sums of one. They are those of the
    worker with the most steps, and where it was absent, those known of others. A repeated step counts once, as it was
    last taken."""
    steady_spans: list[StepsSummed] = field(default_factory=list)
    """The same without the warm-up steps of each session."""
    steps: list[StepDone] = field(default_factory=list)
    """The single steps after the long past, at least the latest `WHOLE_STEPS`; in shorter runs, all steps."""
    steady_steps: list[StepDone] = field(default_factory=list)
    """The same without the warm-up steps of each session."""
    worker_steps: dict[int, list[StepDone]] = field(default_factory=dict)
    """Latest known steps of each worker. Only some steps of other machines' workers are known here."""
    evaluations: list[events.EvaluationDone] = field(default_factory=list)
    checkpoints: list[events.CheckpointSaved] = field(default_factory=list)
    host_readings: dict[str, list[events.HostSampled]] = field(default_factory=dict)
    """Sensor readings by host. In the long past one stands for several, and is repeated as often."""
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
    def start_evaluation(self) -> events.EvaluationDone | None:
        """That of the model that the run began with, before the first step; None for runs from scratch."""
        return next((done for done in self.evaluations if done.step == 0), None)

    @property
    def trained_evaluations(self) -> list[events.EvaluationDone]:
        """All others. Statements about the shape of a curve are about these: no curve of training leads to step 0."""
        return [done for done in self.evaluations if done.step > 0]

    @property
    def hosts(self) -> list[str]:
        """Hosts in the order of their first workers."""
        hosts = [worker.rpartition(" on ")[2] for worker in self.workers]
        return list(dict.fromkeys(hosts)) or [self.started.host]

    @property
    def known_steps(self) -> int:
        """Number of steps that are known here."""
        return sum(span.steps for span in self.spans)

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
            raise DragomanError(
                f"{path} is not the run folder that `dragoman train` got with --out: {hint_at_runs(path)}"
            )
        self._path = path
        self._logs: dict[Path, ThinningReader] = {}

    def read_new(self) -> bool:
        """Read the events written since the last call. Returns False if there are none."""
        for path in RunFolder(self._path).event_logs():
            self._logs.setdefault(path, ThinningReader(path))
        found = [log.read_new() for log in self._logs.values()]
        return any(found)

    def history_so_far(self) -> RunHistory:
        """The history of the events read so far, even if there are none."""
        return _build_history([log.lines for log in self._logs.values()])

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
    logs: dict[int, list[LogLine]] = {}
    for event in sorted(recorded, key=lambda event: event.at_s):
        logs.setdefault(event.worker, []).append(line_of(event))
    return _build_history([thin(lines) for lines in logs.values()])


def _build_history(logs: Sequence[Sequence[LogLine]]) -> RunHistory:
    """Build the history from thinned logs."""
    repeated = set[LogLine]().union(*map(find_repeated, logs))
    timed = [(line.at_s, line) for log in logs for line in log if line.at_s is not None]
    builder = _HistoryBuilder(repeated)
    for _, line in sorted(timed, key=lambda item: item[0]):
        builder.add(line)
    return builder.build()


class _HistoryBuilder:
    """Merges the events of all workers, in the order of time. What all workers record counts once."""

    def __init__(self, repeated: Collection[LogLine]) -> None:
        self._repeated = repeated
        self._history = RunHistory()
        self._steps = StepTimeline()
        self._evaluations: dict[int, events.EvaluationDone] = {}
        self._checkpoints: dict[int, events.CheckpointSaved] = {}
        self._warm_up_end = 0
        self._losses = LossTracker()
        self._session_at_s = 0.0
        self._merged: set[tuple[object, ...]] = set()
        """Incidents since the session started or rolled back, without the time and worker."""

    def add(self, line: LogLine) -> None:
        if isinstance(line, StepLine):
            self._add_step(line)
            self._extend_session(line.at_s)
        elif line.event is not None:
            self._add_event(line.event)

    def _add_event(self, event: Event) -> None:
        history = self._history
        match event:
            case events.HostSampled():
                _append_once(history.host_readings.setdefault(event.host, []), event)
            case events.PeakMeasured():
                history.peaks[event.worker] = event
            case events.RunStarted():
                self._add_start(event)
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
            self._extend_session(event.at_s, ends=isinstance(event, events.RunEnded))

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

    def _extend_session(self, at_s: float, *, ends: bool = False) -> None:
        spans = self._history.session_spans_s
        if spans and (self._history.ended is None or ends):
            spans[-1] = (spans[-1][0], max(spans[-1][1], at_s))

    def _add_step(self, line: StepLine) -> None:
        history = self._history
        history.step = max(history.step, line.step)
        if history.failed is not None and line.step > history.failed.step + 1:
            history.failed = None  # An elastic run has continued without the failed worker.
        self._steps.add(line, is_repeated=line in self._repeated, is_warm_up=line.first_step <= self._warm_up_end)

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
        self._steps.go_back(step)
        for later in [number for number in self._evaluations if number > step]:
            del self._evaluations[later]
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
        history.evaluations, history.checkpoints = _by_step(self._evaluations), _by_step(self._checkpoints)
        taken = self._steps.merge()
        steady = [line for line in taken if not self._steps.is_warm_up(line)] or taken
        history.spans, history.steady_spans = _spans(taken), _spans(steady)
        history.steps, history.steady_steps = _latest_single(taken), _latest_single(steady)
        history.worker_steps = self._steps.latest_by_worker(WORKER_STEPS)
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


def _spans(taken: Sequence[StepLine]) -> list[StepsSummed]:
    return [as_sum(line.event) for line in taken if isinstance(line.event, StepDone | StepsSummed)]


def _latest_single(taken: Sequence[StepLine]) -> list[StepDone]:
    """The steps after the last sum."""
    latest = itertools.takewhile(lambda line: line.steps == 1, reversed(taken))
    return [line.event for line in latest if isinstance(line.event, StepDone)][::-1]


def _append_once(ordered: list[events.HostSampled], event: events.HostSampled) -> None:
    """Append an event that may have been copied twice: the exchange is repeated if a worker is lost meanwhile."""
    if not ordered or ordered[-1].at_s != event.at_s:
        ordered += [event] * event.samples


def _by_step(record: dict[int, E]) -> list[E]:
    return [record[step] for step in sorted(record)]
