"""A run whose workers are threads of the test, each with its own replica, folder and events; and faults to inject."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from dragoman.corpus.dataset import DataSet
from dragoman.distributed.event_sync import EventSync
from dragoman.distributed.process_group import WorkersLostError
from dragoman.errors import DragomanError
from dragoman.events import Event, RunStarted
from dragoman.model.transformer import Transformer
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..distributed.thread_workers import ThreadCluster, ThreadWorkers
from .recorded_run import FakeScorer

E = TypeVar("E", bound=Event)
START_ATTEMPTS = 3
"""Threads of one busy process may lose each other before the run starts, and begin again. Later it is an error."""
_this = threading.local()
"""The worker of the current thread."""


class ThreadWorker:
    """One worker of a run."""

    def __init__(self, cluster: ThreadCluster, settings: Settings, data: DataSet, folder: Path) -> None:
        self.rank = cluster.rank
        self.events: list[Event] = []
        self.stop = StopSignal()
        self.passes = 0
        """Forward passes for training so far: one for each step, if the batches are small."""
        run = RunFolder(folder / cluster.host)
        self._trainer = Trainer(settings, data, run, cluster, FakeScorer(), self.events.append, EventSync(run))
        self.outcome = ""
        """Why the run ended: the reason, or the sentence of the error."""

    def train(self) -> None:
        _this.worker = self
        try:
            self.outcome = self._trainer.train(self.stop)
        except DragomanError as error:
            self.outcome = str(error)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass(frozen=True)
class Fault:
    """Something that happens to one worker in some of its passes, counted from 1."""

    rank: int
    kind: str
    first: int
    count: int = 1


def train_in_threads(
    settings: Settings,
    data: DataSet,
    folder: Path,
    hosts: Sequence[str],
    faults: Sequence[Fault] = (),
    *,
    elastic: bool,
) -> list[ThreadWorker]:
    """Train on one worker for each host, with faults. The settings must have no dropout: all share torch's seed."""
    for attempt in range(START_ATTEMPTS):
        with ThreadWorkers(*hosts) as world, pytest.MonkeyPatch.context() as patch, injected(faults):
            if elastic:
                patch.setattr(ThreadCluster, "survives_losses", True)
            # One after the other: the initial weights depend on torch's seed.
            workers = [ThreadWorker(cluster, settings, data, folder) for cluster in world.clusters]
            try:
                world(lambda cluster, workers=workers: workers[cluster.rank].train())
                return workers
            except WorkersLostError:
                if attempt + 1 == START_ATTEMPTS or any(worker.of(RunStarted) for worker in workers):
                    raise
    raise AssertionError("not reached")


@contextmanager
def injected(faults: Sequence[Fault]) -> Iterator[None]:
    """Change the forward pass of training by the faults of the current thread's worker."""
    forward = Transformer.forward

    def forward_with_faults(self, batch, smoothing=0.0):
        loss, nll = forward(self, batch, smoothing)
        if self.training:
            _this.worker.passes += 1
            for fault in faults:
                if _this.worker.rank == fault.rank and 0 <= _this.worker.passes - fault.first < fault.count:
                    loss = FAULTS[fault.kind](_this.worker, self, loss)
        return loss, nll

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transformer, "forward", forward_with_faults)
        yield


def _not_finite(worker: ThreadWorker, model: Transformer, loss: torch.Tensor) -> torch.Tensor:
    return loss * math.nan


def _gradient_not_finite(worker: ThreadWorker, model: Transformer, loss: torch.Tensor) -> torch.Tensor:
    return loss + torch.sqrt(loss * 0)  # 0, with an infinite derivative


def _out_of_memory(worker: ThreadWorker, model: Transformer, loss: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory")


def _stop(worker: ThreadWorker, model: Transformer, loss: torch.Tensor) -> torch.Tensor:
    worker.stop.requested = True
    return loss


def _flip_weight(worker: ThreadWorker, model: Transformer, loss: torch.Tensor) -> torch.Tensor:
    """Flip the lowest bit of a weight."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[:1].view(torch.int32).bitwise_xor_(1)
    return loss


FAULTS: dict[str, Callable[[ThreadWorker, Transformer, torch.Tensor], torch.Tensor]] = {
    "loss not finite": _not_finite,
    "gradient not finite": _gradient_not_finite,
    "out of memory": _out_of_memory,
    "stop": _stop,
    "weight flipped": _flip_weight,
}


def outcomes(workers: Sequence[ThreadWorker]) -> Counter[str]:
    return Counter(worker.outcome for worker in workers)
