"""An elastic run: a real lighthouse, and workers that are threads of this process."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from dragoman.corpus.dataset import DataSet
from dragoman.distributed import elastic_cluster
from dragoman.distributed.elastic_cluster import ElasticCluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import Event
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import Trainer

from ..distributed.lighthouse_process import Lighthouse
from ..distributed.thread_workers import short_timeout, wait_for_closed_groups
from .recorded_run import FakeScorer

E = TypeVar("E", bound=Event)
WORKERS = 3


class ElasticRun:
    """A run of three workers, each with its own replica, folder and events. The settings must have no dropout."""

    def __init__(self, settings: Settings, data: DataSet, folder: Path, lighthouse: Lighthouse) -> None:
        self.events: list[list[Event]] = [[] for _ in range(WORKERS)]
        self.clusters = [
            ElasticCluster([lighthouse.address], "secret", worker, WORKERS, 1, torch.device("cpu"))
            for worker in range(WORKERS)
        ]
        self.trainers = []
        for cluster in self.clusters:  # One after the other: the initial weights depend on torch's seed.
            run = RunFolder(folder / str(cluster.worker))
            record = self.recorder(cluster.worker)
            self.trainers.append(Trainer(settings, data, run, cluster, FakeScorer(), record, EventSync(run)))

    def recorder(self, worker: int) -> Callable[[Event], None]:
        return self.events[worker].append

    def train(self) -> list[str]:
        """The reasons of the end, by worker."""
        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(lambda trainer: trainer.train(StopSignal()), self.trainers))

    def of(self, worker: int, kind: type[E]) -> list[E]:
        return [event for event in self.events[worker] if isinstance(event, kind)]

    def weights(self, worker: int) -> Mapping[str, torch.Tensor]:
        """The weights of a worker, and their moving average."""
        replica = self.trainers[worker]._replica
        averages = (
            {} if replica.ema is None else {f"average of {name}": each for name, each in replica.ema.weights.items()}
        )
        return {**replica.model.state_dict(), **averages}

    def assert_equal_weights(self) -> None:
        first = self.weights(0)
        for worker in range(1, WORKERS):
            for name, tensor in self.weights(worker).items():
                assert torch.equal(tensor, first[name]), name


R = TypeVar("R", bound=ElasticRun)


@contextmanager
def finished_run(
    kind: Callable[[Settings, DataSet, Path, Lighthouse], R], settings: Settings, data: DataSet, folder: Path
) -> Iterator[R]:
    """A run that has trained to the end."""
    lighthouse = Lighthouse()
    lighthouse.wait_until_ready()
    with pytest.MonkeyPatch.context() as patch, short_timeout():
        patch.setattr(elastic_cluster, "SILENCE_S", 20.0)  # Threads of one busy process are silent for longer.
        run = kind(settings, data, folder, lighthouse)
        assert run.train() == ["finished"] * WORKERS
        yield run
        for cluster in run.clusters:
            cluster.close()
        lighthouse.kill()
    wait_for_closed_groups()
