"""One worker's process: join the others, open the run folder, record events, and train."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dragoman.corpus.data_mixture import DataArgument, open_data
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.evaluation_set import EvaluationSet, read_evaluation_sets
from dragoman.distributed.cluster import Cluster, join_cluster
from dragoman.distributed.process_group import WorkersLostError
from dragoman.errors import EXIT_DIVERGED, EXIT_USER_ERROR, EXIT_WORKERS_LOST, DragomanError, write_remedy
from dragoman.event_log import EventLog
from dragoman.files import locked, read_json, write_json
from dragoman.model.precision import Precision
from dragoman.recipe import settings_from_json
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.peak_flops_benchmark import measure_peak
from dragoman.telemetry.sinks import Sink
from dragoman.telemetry.trackers import missing_packages
from dragoman.training.evaluation import TranslationScorer
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.fingerprint import Fingerprint, require_equal
from dragoman.training.start_model import StartModel, StartWeights
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer
from dragoman.worker_environment import RESTARTED

FIXED_SETTINGS: dict[str, bool | set[str]] = {
    "model": True,
    "batch": True,
    "optimizer": {"algorithm"},
    "fine_tuning": {"freeze"},
}
"""Settings that must not change during a run: the shape of the weights, the plan that the position refers to, and the
meaning of the optimizer's state."""

MakeScorer = Callable[[Settings, DataSet], TranslationScorer]
OpenSinks = Callable[[Settings], Sequence[Sink]]
"""Opens the views of a run, such as the terminal, at the first event to show."""


@dataclass(frozen=True)
class TrainingJob:
    """The settings, data set and run folder of `train`."""

    settings: Settings
    data: DataArgument | Sequence[DataArgument]
    """The data set, or several: `DATA` or `DATA@WEIGHT`."""
    run: Path
    threads: int = 0
    """CPU threads of each worker; 0 leaves the choice to torch."""
    start: StartModel | None = None
    """The model to begin with; None for random weights."""
    also_evaluate: Sequence[str] = ()
    """Other sets to evaluate on: `NAME=SOURCE,REFERENCE`."""

    def open_texts(self) -> tuple[DataSet, list[EvaluationSet]]:
        """Open the data, and read the other sets to evaluate on."""
        data = open_data(self.data)
        return data, read_evaluation_sets(self.also_evaluate, data.tokenizer)


def train(job: TrainingJob, make_scorer: MakeScorer, open_sinks: OpenSinks) -> str:
    """Train alone, or as one of several workers if the environment says so. Returns the reason why the run ended."""
    if job.threads:
        torch.set_num_threads(job.threads)
    cluster = join_cluster()
    stop = StopSignal()
    try:
        with stop.listening():  # Not earlier: a worker that still waits for others has nothing to save.
            reason = _train(job, cluster, stop, make_scorer, open_sinks)
    except WorkersLostError as lost:
        print(f"error: {lost}", file=sys.stderr, flush=True)
        os._exit(EXIT_WORKERS_LOST)  # Operations that wait for lost workers would keep this process alive.
    except DragomanError as error:
        if not cluster.survives_losses:
            raise
        # Threads of an elastic world may crash a process that exits as usual, and the launcher would restart it.
        print(f"error: {error}", file=sys.stderr, flush=True)
        cluster.exit_process(EXIT_USER_ERROR)
        raise
    finally:
        cluster.close()
    cluster.exit_process(EXIT_DIVERGED if reason == "diverged" else 0)
    return reason


def _train(job: TrainingJob, cluster: Cluster, stop: StopSignal, make_scorer: MakeScorer, open_sinks: OpenSinks) -> str:
    data, other_sets = _open_texts(job, cluster)
    start = _open_start(job, data, cluster)
    settings = job.settings if start is None else start.settings
    require_equal(cluster, Fingerprint.of(settings, data, start, other_sets))  # Before anything is written.
    run = RunFolder(job.run)
    check_shares(settings, cluster.workers)
    origin = None if start is None else start.origin
    problem = missing_trackers(settings) if cluster.is_main else None
    problem = problem or open_run(run, settings, data, origin, job.also_evaluate)
    log = EventLog(run.events_of(cluster.worker)) if problem is None else None
    if log is not None and not log.lock():
        problem = f"{run.path} is being trained by another process: wait until it ends, or choose another --out."
    _raise_together(problem, cluster)
    assert log is not None
    scorer = make_scorer(settings, data)
    recorder = EventRecorder(run, log, cluster, lambda: open_sinks(settings), settings)
    return train_and_record(settings, data, run, cluster, scorer, recorder, stop, start, other_sets)


def train_and_record(
    settings: Settings,
    data: DataSet,
    run: RunFolder,
    cluster: Cluster,
    scorer: TranslationScorer,
    recorder: EventRecorder,
    stop: StopSignal,
    start: StartWeights | None = None,
    other_sets: Sequence[EvaluationSet] = (),
) -> str:
    """Train, and record all events of it. Closes the recorder. Returns the reason why the run ended."""
    if cluster.device.type == "cuda":
        # The CPU only makes batches and starts kernels. More threads would wait busily beside the ones that do.
        torch.set_num_threads(1)
    try:
        if RESTARTED not in os.environ:  # The others are waiting, and it is the same machine.
            recorder.log(measure_peak(Precision.choose(settings, cluster.device).dtype, cluster.device))
        trainer = Trainer(settings, data, run, cluster, scorer, recorder.record, recorder.event_sync, start, other_sets)
        return trainer.train(stop)
    finally:
        recorder.close()


def _open_texts(job: TrainingJob, cluster: Cluster) -> tuple[DataSet, list[EvaluationSet]]:
    opened, problem = None, None
    try:
        opened = job.open_texts()
    except DragomanError as error:
        problem = str(error)
    _raise_together(problem, cluster)
    assert opened is not None
    return opened


def _open_start(job: TrainingJob, data: DataSet, cluster: Cluster) -> StartWeights | None:
    start, problem = None, None
    if job.start is not None:
        try:
            start = job.start.open(job.settings, data)
        except DragomanError as error:
            problem = str(error)
    _raise_together(problem, cluster)
    return start


def _raise_together(problem: str | None, cluster: Cluster) -> None:
    """Raise on all workers of a static world if one of them has a problem: otherwise they would wait for it."""
    problems = cluster.all_gather_json(problem)
    for member, found in zip(cluster.members, problems, strict=True):
        if found is not None:
            raise DragomanError(found if None not in problems else f"Worker {member.worker} on {member.host}: {found}")


def missing_trackers(settings: Settings) -> str | None:
    """The problem with the trackers of a run, if their packages are not installed."""
    missing = missing_packages(settings.telemetry.trackers)
    command = f"pip install {' '.join(missing)}"
    return f"telemetry.trackers needs packages that are not installed: `{command}`." if missing else None


def open_run(
    run: RunFolder,
    settings: Settings,
    data: DataSet,
    start: Mapping[str, str] | None = None,
    also_evaluate: Sequence[str] = (),
) -> str | None:
    """Create the run folder, or check that its run can resume with these settings. Returns the problem, if any.

    `start` names the model that the run begins with, and its weights.
    """
    try:
        run.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(run.path.parent):  # All workers of a machine do this at the same time.
            return _open_run(run, settings, data, start, also_evaluate)
    except OSError as error:
        remedy = write_remedy(error.strerror)
        return f"{run.path} cannot be written ({error.strerror}): {remedy}, or choose another --out."


def _open_run(
    run: RunFolder,
    settings: Settings,
    data: DataSet,
    start: Mapping[str, str] | None,
    also_evaluate: Sequence[str],
) -> str | None:
    content: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "data": data.manifest.identity}
    content |= {} if start is None else {"start": dict(start)}
    if also_evaluate:
        content["also_evaluate"] = list(also_evaluate)
    if run.config.exists():
        earlier = read_json(run.config)
        if earlier["data"] != content["data"]:
            return (
                f"{run.path} was trained on another data set, or on several with other weights: choose another --out, "
                "or pass the --data it was started with."
            )
        if problem := _changed_start(run, earlier.get("start"), start):
            return problem
        changed = _changed_settings(settings_from_json(earlier["settings"]), settings)
        if changed:
            listing = "; ".join(changed)
            return f"{run.path} was started with other settings ({listing}): choose another --out, or restore them."
    elif run.path.exists() and any(run.path.iterdir()):
        return f"{run.path} exists and is not a run: choose another --out."
    run.path.mkdir(parents=True, exist_ok=True)
    write_json(run.config, content)
    return None


def _changed_start(run: RunFolder, earlier: Mapping[str, str] | None, now: Mapping[str, str] | None) -> str | None:
    if (earlier and earlier["weights"]) == (now and now["weights"]):
        return None
    begin = f"from {earlier['model']}" if earlier else "with random weights"
    option = f"give --from {earlier['model']}" if earlier else "leave out --from"
    return f"{run.path} began {begin}, and not with these weights: choose another --out, or {option}."


def _changed_settings(earlier: Settings, now: Settings) -> list[str]:
    def flat(settings: Settings) -> dict[str, Any]:
        dump = settings.model_dump(include=FIXED_SETTINGS)
        return {f"{section}.{name}": value for section, part in dump.items() for name, value in part.items()}

    before, after = flat(earlier), flat(now)
    return [f"{key} was {before[key]}, not {after[key]}" for key in before if before[key] != after[key]]


def check_shares(settings: Settings, workers: int) -> None:
    """Raise if `training.shares` does not have one share for each worker."""
    shares = settings.training.shares
    if not isinstance(shares, str) and len(shares) != workers:
        raise DragomanError(
            f"training.shares = {list(shares)} has {len(shares)} entries, but there are {workers} workers: "
            "give one share for each worker."
        )
