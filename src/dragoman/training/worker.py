"""One worker's session of a run: meet the others, open the run's folder, tell everyone who listens, and train."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dragoman.corpus.dataset import DataSet
from dragoman.distributed.cluster import Cluster, join
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.process_group import WorkersLostError
from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import Event, PeakMeasured, RunEnded, RunStarted
from dragoman.files import locked, read_json, write_json
from dragoman.model.precision import Precision
from dragoman.recipe import settings_from_json
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.peak_flops import measure_peak_flops
from dragoman.telemetry.sensors import Sensors
from dragoman.telemetry.sinks import Sink, TensorBoardSink, TerminalSink
from dragoman.training.evaluation import TranslationJudge
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

EXIT_LOST = 3
"""Of a worker whose static world has lost another."""
EXIT_DIVERGED = 1

FIXED_SECTIONS = ("model", "batch")
"""What must not change in the middle of a run: the shape of the weights, and the plan that the position points into."""


@dataclass(frozen=True)
class TrainingJob:
    """What to train, on what, and where the run lies."""

    settings: Settings
    data: Path
    run: Path
    threads: int = 0
    """Threads of each worker on a CPU; 0 leaves the choice to torch."""


def train(job: TrainingJob, make_judge: Callable[[Settings, DataSet], TranslationJudge]) -> str:
    """Train as this process's environment says: alone, or as one of several workers. Gives the reason of the end."""
    if job.threads:
        torch.set_num_threads(job.threads)
    cluster = join()
    stop = StopSignal()
    try:
        with stop.listening():  # Only now: a worker that is still waiting for others has nothing to save.
            reason = _train(job, cluster, stop, make_judge)
    except WorkersLostError as lost:
        print(f"error: {lost}", file=sys.stderr, flush=True)
        os._exit(EXIT_LOST)  # What still waits for the dead would keep this process from ending.
    finally:
        cluster.leave()
    if cluster.elastic:
        sys.stdout.flush()
        os._exit(EXIT_DIVERGED if reason == "diverged" else 0)  # As above: in such a world some may have died.
    return reason


def _train(
    job: TrainingJob, cluster: Cluster, stop: StopSignal, make_judge: Callable[[Settings, DataSet], TranslationJudge]
) -> str:
    data = DataSet(job.data)
    run = RunFolder(job.run)
    check_shares(job.settings, cluster.workers)
    problem = open_run(run, job.settings, data)
    log = EventLog(run.events_of(cluster.worker)) if problem is None else None
    if log is not None and not log.claim():
        problem = f"{run.path} is being trained by another process: wait for its end, or choose another --out."
    # In a static world all must hear of a problem that only one has: they would wait for it.
    problems = [problem] if cluster.elastic else cluster.gather(problem)
    if found := [each for each in problems if each is not None]:
        raise DragomanError(found[0])
    assert log is not None
    broadcast = EventRecorder(run, log, job.settings, cluster)
    try:
        judge = make_judge(job.settings, data)
        flops_per_s = measure_peak_flops(Precision.choose(job.settings, cluster.device).dtype, cluster.device)
        broadcast.note(PeakMeasured(flops_per_s=flops_per_s))
        return Trainer(job.settings, data, run, cluster, judge, broadcast.record, broadcast.post).train(stop)
    finally:
        broadcast.close()


class EventRecorder:
    """Tells every event to the log of this worker and to the post, and those of the first worker to people too.

    The first worker of each machine adds what the machine's sensors see.
    """

    def __init__(self, run: RunFolder, log: EventLog, settings: Settings, cluster: Cluster) -> None:
        self._run, self._log, self._settings, self._cluster = run, log, settings, cluster
        self.post = EventSync(run)
        self._sinks: list[Sink] = []
        watching = os.environ.get("LOCAL_RANK", "0") == "0"
        self._sensors = Sensors(cluster.host, self.note) if watching else None

    def record(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._stop_watching()  # The end of a run is the last that its log tells.
        self.note(event)
        # Who is first may change: where the machines come and go, the next one takes over.
        if self._cluster.is_first and not self._sinks:
            self._sinks = [
                TerminalSink(Console(file=sys.stdout), self._settings),
                TensorBoardSink(
                    self._run.tensorboard,
                    event.resumed_step if isinstance(event, RunStarted) else getattr(event, "step", 0),
                ),
            ]
        if self._cluster.is_first:
            for sink in self._sinks:
                sink.record(event)

    def note(self, event: Event) -> None:
        """For the logs alone."""
        event = replace(event, worker=self._cluster.worker)
        self._log.record(event)
        self.post.add(event)

    def _stop_watching(self) -> None:
        if self._sensors is not None:
            self._sensors.close()
            self._sensors = None

    def close(self) -> None:
        self._stop_watching()
        for sink in self._sinks:
            sink.close()
        self._log.close()


def open_run(run: RunFolder, settings: Settings, data: DataSet) -> str | None:
    """Begin a run's folder, or check that an earlier one can go on with these settings. Gives the problem, if any."""
    try:
        run.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(run.path.parent):  # Workers of a machine come here at the same time.
            return _open_run(run, settings, data)
    except OSError as error:
        return f"{run.path} cannot be written to ({error.strerror}): make room there, or choose another --out."


def _open_run(run: RunFolder, settings: Settings, data: DataSet) -> str | None:
    content = {"settings": settings.model_dump(mode="json"), "data": data.manifest.identity}
    if run.config.exists():
        earlier = read_json(run.config)
        if earlier["data"] != content["data"]:
            return (
                f"{run.path} was trained on another data set: choose another --out, or give the data set it began with."
            )
        changed = _changed(settings_from_json(earlier["settings"]), settings)
        if changed:
            listing = "; ".join(changed)
            return f"{run.path} began with other settings ({listing}): choose another --out, or set them as they were."
    elif run.path.exists() and any(run.path.iterdir()):
        return f"{run.path} exists and is no run: choose another --out."
    run.path.mkdir(parents=True, exist_ok=True)
    write_json(run.config, content)
    return None


def _changed(earlier: Settings, now: Settings) -> list[str]:
    def flat(settings: Settings) -> dict[str, Any]:
        dump = settings.model_dump(include=set(FIXED_SECTIONS))
        return {f"{section}.{name}": value for section, part in dump.items() for name, value in part.items()}

    before, after = flat(earlier), flat(now)
    return [f"{key} was {before[key]}, not {after[key]}" for key in before if before[key] != after[key]]


def check_shares(settings: Settings, workers: int) -> None:
    shares = settings.training.shares
    if not isinstance(shares, str) and len(shares) != workers:
        named = f"training.shares = {list(shares)} names {len(shares)} workers"
        raise DragomanError(f"{named}, but there are {workers}: give one share each.")


def launched_by_others() -> bool:
    """Whether torchrun or its like has already made a world that this process belongs to."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ
