"""Workers on this machine, started and watched by torch's elastic agent."""

import logging
import os
import signal
import uuid
from types import FrameType

import psutil
import torch
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dragoman.distributed.cluster import launched_externally
from dragoman.errors import DragomanError
from dragoman.launch import RESTARTS
from dragoman.launch.parent_death import die_with
from dragoman.telemetry.sinks import open_sinks
from dragoman.training import worker
from dragoman.training.stop_signal import EXIT_AT_ONCE, STOP_SIGNALS, handling
from dragoman.training.worker import MakeScorer, TrainingJob

STOP_ASKED = "DRAGOMAN_STOP_ASKED"
"""Environment variable of workers that start after they were asked to stop."""


def train(job: TrainingJob, workers: int, make_scorer: MakeScorer) -> str:
    """Train on this machine; join the world of torchrun if there is one. Returns the reason for the end.

    `make_scorer` is sent to other processes, so it must be a function of a module.
    """
    if workers == 1 or launched_externally():
        return worker.train(job, make_scorer, open_sinks)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=RESTARTS,
        signals_to_handle="SIGQUIT",  # The agent would end the workers unsaved, and handle a SIGHUP that nohup ignores.
        logs_specs=DefaultLogsSpecs(),
    )
    # The agent logs each death with a traceback of its own; `_explain` replaces it by a sentence.
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with handling(_ask_workers_to_stop, *STOP_SIGNALS):
            outcomes = elastic_launch(config, _work)(job, make_scorer, os.getpid())
    except ChildFailedError as error:
        raise DragomanError(_explain(error, job)) from None
    finally:
        os.environ.pop(STOP_ASKED, None)
    first = outcomes[0]
    if isinstance(first, DragomanError):
        raise first
    return str(first)


def _work(job: TrainingJob, make_scorer: MakeScorer, parent: int) -> str | DragomanError:
    """Main function of a worker. User errors are returned: raised, they would count as crashes and be retried."""
    die_with(parent)
    if STOP_ASKED in os.environ:
        return "interrupted"
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if restarts and os.environ.get("RANK") == "0":
        print(
            f"A worker was lost: restarting all workers from the newest checkpoint ({restarts} of {RESTARTS}).",
            flush=True,
        )
    try:
        return worker.train(job, make_scorer, open_sinks)
    except DragomanError as error:
        return error


def _ask_workers_to_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the form of a signal handler)
    """Ask workers to finish their step and save. As SIGTERM: a terminal's Ctrl-C reaches them too, and is counted.

    Workers that are still starting die of it and are restarted: the environment tells those to stop.
    """
    os.environ[STOP_ASKED] = "1"
    for child in psutil.Process().children():
        child.send_signal(signal.SIGTERM)


def _explain(error: ChildFailedError, job: TrainingJob) -> str:
    rank, failure = error.get_first_failure()
    how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
    if failure.exitcode == EXIT_AT_ONCE:
        return f"Stopped at once, without a last checkpoint: the same command resumes from the newest one in {job.run}."
    message = failure.message if isinstance(failure.message, str) else str(failure.message.get("message", ""))
    reason = message.strip().rpartition("\n")[2] or how
    return (
        f"Worker {rank} failed repeatedly ({how}): {reason}. Checkpoints are in {job.run}; the same command "
        "resumes from there."
    )


def default_workers() -> int:
    """Workers of this machine in a world that a scheduler made; otherwise one per GPU, or one that uses all cores."""
    if launched_externally():
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, torch.cuda.device_count())


def worker_threads(workers: int) -> int:
    """Cores of this machine for each worker."""
    return max(1, len(os.sched_getaffinity(0)) // workers)
