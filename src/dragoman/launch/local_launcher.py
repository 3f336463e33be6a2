"""Workers on this machine, started and watched by torch's elastic agent."""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

import psutil
import torch
from rich.console import Console
from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dragoman.corpus.dataset import DataSet
from dragoman.decoding import scoring
from dragoman.decoding.translator import Translator
from dragoman.errors import DragomanError
from dragoman.events import Event, RunStarted
from dragoman.launch import RESTARTS
from dragoman.launch.parent_death import die_with
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import DecodingSettings, Settings
from dragoman.telemetry.sinks import Sink, TensorBoardSink, TerminalSink
from dragoman.training import worker
from dragoman.training.evaluation import Quality
from dragoman.training.stop_signal import EXIT_AT_ONCE, STOP_SIGNALS, handling
from dragoman.training.worker import TrainingJob

STOP_ASKED = "DRAGOMAN_STOP_ASKED"
"""In the environment of workers that start although they were asked to stop."""


@dataclass(frozen=True)
class BeamJudge:
    """Judges a model by its translations, searched for as its users will."""

    data: DataSet
    options: DecodingSettings

    def translate(self, model: Transformer, lines: Sequence[str]) -> list[str]:
        return Translator(model, self.data.tokenizer, self.options).translate(lines)

    def score(self, translations: Sequence[str], references: Sequence[str]) -> Quality:
        found = scoring.score(translations, references, language=self.data.languages.target)
        return Quality(found.bleu.value, found.bleu.signature, found.chrf.value, found.chrf.signature)


def make_judge(settings: Settings, data: DataSet) -> BeamJudge:
    return BeamJudge(data, settings.decoding)


def open_sinks(run: RunFolder, settings: Settings, first: Event) -> list[Sink]:
    """The terminal's view of a run and its TensorBoard curves, from the first event to show on."""
    first_step = first.resumed_step if isinstance(first, RunStarted) else getattr(first, "step", 0)
    return [TerminalSink(Console(file=sys.stdout), settings), TensorBoardSink(run.tensorboard, first_step)]


def train(job: TrainingJob, workers: int) -> str:
    """Train on this machine, and give the reason of the end. A world that torchrun has made is joined as it is."""
    if workers == 1 or worker.launched_externally():
        return worker.train(job, make_judge, open_sinks)
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
    # The agent tells every death with a traceback of its own; `_explain` says it in a sentence.
    for name in ("torch.distributed.elastic", "torch.multiprocessing"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with handling(_ask_workers_to_stop, *STOP_SIGNALS):
            outcomes = elastic_launch(config, _work)(job, os.getpid())
    except ChildFailedError as error:
        raise DragomanError(_explain(error, job)) from None
    finally:
        os.environ.pop(STOP_ASKED, None)
    first = outcomes[0]
    if isinstance(first, DragomanError):
        raise first
    return str(first)


def _work(job: TrainingJob, parent: int) -> str | DragomanError:
    """What a worker runs. A user's mistake is handed back: raised, it would look like a crash and be tried again."""
    die_with(parent)
    if STOP_ASKED in os.environ:
        return "interrupted"
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if restarts and os.environ.get("RANK") == "0":
        print(f"A worker was lost: all start again from the newest checkpoint ({restarts} of {RESTARTS}).", flush=True)
    try:
        return worker.train(job, make_judge, open_sinks)
    except DragomanError as error:
        return error


def _ask_workers_to_stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the form of a signal handler)
    """Pass it on, so that they finish their step and save. A terminal's Ctrl-C has reached them already, and counts.

    Workers that are still starting die of it, and are started again: those must know.
    """
    os.environ[STOP_ASKED] = "1"
    for child in psutil.Process().children():
        child.send_signal(signal.SIGTERM)


def _explain(error: ChildFailedError, job: TrainingJob) -> str:
    rank, failure = error.get_first_failure()
    how = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
    if failure.exitcode == EXIT_AT_ONCE:
        return f"Left at once, without a last checkpoint: the same command goes on from the newest one in {job.run}."
    message = failure.message if isinstance(failure.message, str) else str(failure.message.get("message", ""))
    reason = message.strip().splitlines()[-1] if message.strip() else how
    return (
        f"Worker {rank} failed again and again ({how}): {reason}. What was trained is safe in {job.run}; the same "
        "command goes on from there."
    )


def default_workers() -> int:
    """As many as this machine has in a world that others made; else one for each GPU, or one that takes all cores."""
    if worker.launched_externally():
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, torch.cuda.device_count())


def worker_threads(workers: int) -> int:
    """Cores of this machine for each worker."""
    return max(1, len(os.sched_getaffinity(0)) // workers)
