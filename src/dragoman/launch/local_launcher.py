"""Workers on this machine: started, watched, and restarted together from the newest checkpoint when one is lost.

They find each other through a file, and listen on the loopback address only.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

import torch

from dragoman.authentication import new_secret
from dragoman.distributed.cluster import launched_externally
from dragoman.errors import EXIT_WORKERS_LOST, DragomanError
from dragoman.events import Event
from dragoman.launch import NOTICE_S, RESTARTS
from dragoman.launch.exit_name import exit_name
from dragoman.launch.parent_death import die_with
from dragoman.launch.worker_processes import GRACE_S
from dragoman.relay import LOOPBACK
from dragoman.telemetry.sinks import Sink, open_sinks, say
from dragoman.training import worker
from dragoman.training.stop_signal import EXIT_AT_ONCE, STOP_SIGNALS, handling
from dragoman.training.worker import MakeScorer, TrainingJob
from dragoman.worker_environment import ADDRESS, SECRET, STORE_FILE


@dataclass(frozen=True)
class WorkerOutcome:
    """End of a worker's process."""

    rank: int
    exit_code: int
    reason: str = ""
    """Why the run ended."""
    user_error: str = ""
    exception: str = ""
    """What went wrong in the worker, if it could tell."""

    @property
    def failed(self) -> bool:
        return bool(self.exit_code or self.user_error or self.exception)

    def __str__(self) -> str:
        cause = self.exception or exit_name(self.exit_code)
        return f"worker {self.rank} failed ({cause})"


def train(job: TrainingJob, workers: int, make_scorer: MakeScorer) -> str:
    """Train on this machine; join the world of torchrun if there is one. Returns the reason for the end.

    The run is shown by this process. `make_scorer` is sent to other processes, so it must be a function of a module.
    """
    if workers == 1 or launched_externally():
        return worker.train(job, make_scorer, open_sinks)
    return LocalWorkers(job, workers, make_scorer).train()


class LocalWorkers:
    """The workers of a run on this machine."""

    def __init__(self, job: TrainingJob, workers: int, make_scorer: MakeScorer) -> None:
        self._job, self._workers, self._make_scorer = job, workers, make_scorer
        self._processes: list[SpawnProcess] = []
        self._view = _RunView(job)
        self._stop_requested = False

    def train(self) -> str:
        """Train to the end. Returns the reason for it."""
        with handling(self._ask_workers_to_stop, *STOP_SIGNALS):
            for restart in range(RESTARTS + 1):
                failure = self._train_once()
                if isinstance(failure, str):
                    return failure
                self._raise_if_final(failure)
                if restart < RESTARTS:
                    say(
                        self._job.settings,
                        f"A worker was lost: {failure}. Restarting all workers from the newest checkpoint "
                        f"({restart + 1} of {RESTARTS}).",
                    )
        raise DragomanError(
            f"Gave up after {RESTARTS} restarts: {failure}. Checkpoints are in {self._job.run}; the same command "
            "resumes from there."
        )

    def _train_once(self) -> str | WorkerOutcome:
        """Run all workers once. Returns the reason for the end of the run, or the first failure."""
        with self._started() as receivers:
            outcomes = self._wait(receivers)
        if self._stop_requested and any(outcome.exit_code in (-signal.SIGTERM, -signal.SIGINT) for outcome in outcomes):
            return "interrupted"  # It was still starting: there was nothing to save.
        failures = [outcome for outcome in outcomes if outcome.failed]
        if not failures:
            return outcomes[0].reason
        # Those that lost another worker are not the cause.
        return min(failures, key=lambda outcome: (not outcome.user_error, outcome.exit_code == EXIT_WORKERS_LOST))

    def _raise_if_final(self, failure: WorkerOutcome) -> None:
        """Raise for a failure that a restart does not help against."""
        if failure.user_error:
            raise DragomanError(failure.user_error)
        if self._stop_requested or failure.exit_code == EXIT_AT_ONCE:
            raise DragomanError(
                "Stopped at once, without a last checkpoint: the same command resumes from the newest one in "
                f"{self._job.run}."
            )

    @contextmanager
    def _started(self) -> Iterator[Sequence[Connection]]:
        """Start all workers; end those that still run on leaving."""
        context = multiprocessing.get_context("spawn")
        secret = new_secret()
        with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:  # Readable by this user only.
            self._processes, receivers = [], []
            for rank in range(self._workers):
                receiver, sender = context.Pipe(duplex=False)
                environment = {**self._environment(rank), SECRET: secret, STORE_FILE: str(Path(folder) / "store")}
                process = context.Process(
                    target=_work, args=(self._job, self._make_scorer, os.getpid(), environment, sender)
                )
                process.start()
                sender.close()
                self._processes.append(process)
                receivers.append(receiver)
            if self._stop_requested:  # The signal came before they could receive it.
                self._terminate()
            try:
                yield receivers
            finally:
                for process in self._processes:
                    process.kill()
                    process.join()
                self._view.close()

    def _environment(self, rank: int) -> dict[str, str]:
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._workers),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(self._workers),
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
            ADDRESS: LOOPBACK,
        }

    def _wait(self, receivers: Sequence[Connection]) -> list[WorkerOutcome]:
        """Wait until all workers have exited. After a failure the others exit by themselves, or are killed."""
        failed_at = None
        reports = [_WorkerReport(receiver, self._view) for receiver in receivers]
        while running := [process for process in self._processes if process.exitcode is None]:
            sentinels = [process.sentinel for process in running]
            connection.wait([*sentinels, *(each.receiver for each in reports if each.is_open)], timeout=1.0)
            for report in reports:
                report.read()
            if failed_at is None and any(process.exitcode for process in self._processes):
                failed_at = time.monotonic()
            limit_s = GRACE_S if self._stop_requested else NOTICE_S
            if failed_at is not None and time.monotonic() - failed_at > limit_s:
                for process in running:
                    process.kill()
        return [
            WorkerOutcome(rank, process.exitcode or 0, **report.read())
            for rank, (process, report) in enumerate(zip(self._processes, reports, strict=True))
        ]

    def _ask_workers_to_stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler)
        """Ask workers to finish their step and save. As SIGTERM: they count Ctrl-C, which reaches them too."""
        self._stop_requested = True
        self._terminate()

    def _terminate(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()


class _RunView:
    """The sinks that show a run in this process, opened at its first event."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._sinks: Sequence[Sink] = []

    def record(self, event: Event) -> None:
        self._sinks = self._sinks or open_sinks(self._job.settings)
        for sink in self._sinks:
            sink.record(event)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
        self._sinks = []


class _WorkerReport:
    """The messages of a worker: events to show, and at last how it ended."""

    def __init__(self, receiver: Connection, view: _RunView) -> None:
        self.receiver, self._view = receiver, view
        self.is_open = True
        self._ending: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Show new events. Returns how the worker ended, as far as it has reported that."""
        while (message := self._receive()) is not None:
            if isinstance(message, Event):
                self._view.record(message)
            else:
                self._ending = message
        return self._ending

    def _receive(self) -> Event | dict[str, str] | None:
        try:
            return self.receiver.recv() if self.is_open and self.receiver.poll() else None
        except (EOFError, OSError):  # The worker has exited, maybe in the middle of a message.
            self.receiver.close()
            self.is_open = False
            return None


class _SentEvents:
    """A sink that sends events to the process that shows the run."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    def record(self, event: Event) -> None:
        self._sender.send(event)

    def close(self) -> None:
        """The connection stays open: how the worker ends is sent through it, too."""


def _work(
    job: TrainingJob, make_scorer: MakeScorer, parent: int, environment: dict[str, str], outcome: Connection
) -> None:
    """Main function of a worker. Reports to the parent how it ended."""
    die_with(parent)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Until training handles it: there is nothing to save.
    os.environ.update(environment)
    try:
        outcome.send({"reason": worker.train(job, make_scorer, lambda _: [_SentEvents(outcome)])})
    except DragomanError as error:
        outcome.send({"user_error": str(error)})
    except Exception as error:
        traceback.print_exc()
        outcome.send({"exception": f"{type(error).__name__}: {error}"})
        sys.exit(1)


def default_workers() -> int:
    """Workers of this machine in a world that a scheduler made; otherwise one per GPU, or one that uses all cores."""
    if launched_externally():
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, torch.cuda.device_count())


def worker_threads(workers: int) -> int:
    """Cores of this machine for each worker."""
    return max(1, len(os.sched_getaffinity(0)) // workers)
