"""An elastic run in which a worker is late: a real lighthouse, and workers that are threads of this process."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dragoman.corpus.dataset import DataSet
from dragoman.distributed import elastic_cluster
from dragoman.distributed.elastic_cluster import ElasticCluster
from dragoman.distributed.event_sync import EventSync
from dragoman.events import Event, ReplicasDrifted, StepDone, WorkersLost, WorldChanged
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.worker_losses import worker_name
from dragoman.training.stop_signal import StopSignal
from dragoman.training.train_step import TrainStep
from dragoman.training.trainer import Trainer

from ..distributed.lighthouse_process import Lighthouse
from ..distributed.thread_workers import short_timeout, wait_for_closed_groups
from ..small import tiny
from .recorded_run import FakeScorer

WORKERS, LATE = 3, 2
"""The last worker is late."""
EVERY, STEPS = 4, 120
LATE_STEP = 2 * EVERY + 2
"""The step in which it is slow: not the first one of an interval."""
SETTINGS = (
    "exchange.method=local", f"exchange.every={EVERY}", "exchange.quorum=0.6", "exchange.grace_s=3",
    f"training.steps={STEPS}", "evaluation.every=1000", "evaluation.bleu=false", "checkpoint.every=1000",
    "model.dropout=0",
)  # fmt: skip


class LateRun:
    """A run whose last worker stays in a step until the others have continued without it, and joins them later."""

    def __init__(self, settings: Settings, data: DataSet, folder: Path, lighthouse: Lighthouse) -> None:
        self.events: list[list[Event]] = [[] for _ in range(WORKERS)]
        self._continued, self._asked = threading.Event(), threading.Event()
        self.clusters = [
            ElasticCluster([lighthouse.address], "secret", worker, WORKERS, 1, torch.device("cpu"))
            for worker in range(WORKERS)
        ]
        self.trainers = []
        for cluster in self.clusters:  # One after the other: the initial weights depend on torch's seed.
            run = RunFolder(folder / str(cluster.worker))
            record = self._recorder(cluster.worker)
            trainer = Trainer(settings, data, run, cluster, FakeScorer(), record, EventSync(run))
            self._slow_down(trainer._train_step, cluster.worker)
            self.trainers.append(trainer)

    def _recorder(self, worker: int) -> Callable[[Event], None]:
        def record(event: Event) -> None:
            self.events[worker].append(event)
            if isinstance(event, WorkersLate) and worker == LATE:
                self._asked.set()
            elif isinstance(event, WorldChanged):
                self._continued.set()

        return record

    def _slow_down(self, train_step: TrainStep, worker: int) -> None:
        original = train_step._add_gradients

        def add_gradients(*given: object, **options: object) -> None:
            step = self.trainers[worker]._replica.state.step + 1
            if worker == LATE and step == LATE_STEP:
                self._continued.wait()
            elif worker != LATE and step == LATE_STEP + 2 * EVERY:
                self._asked.wait()  # So that the run does not end before the late worker is back.
            original(*given, **options)

        train_step._add_gradients = add_gradients

    def train(self) -> list[str]:
        """The reasons of the end, by worker."""
        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(lambda trainer: trainer.train(StopSignal()), self.trainers))

    def of(self, worker: int, kind: type[Event]) -> list[Event]:
        return [event for event in self.events[worker] if isinstance(event, kind)]

    def weights(self, worker: int) -> Mapping[str, torch.Tensor]:
        return self.trainers[worker]._replica.model.state_dict()


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateRun]:
    lighthouse = Lighthouse()
    lighthouse.wait_until_ready()
    with pytest.MonkeyPatch.context() as patch, short_timeout():
        patch.setattr(elastic_cluster, "SILENCE_S", 20.0)  # Threads of one busy process are silent for longer.
        late_run = LateRun(tiny(*SETTINGS), data, tmp_path_factory.mktemp("late"), lighthouse)
        assert late_run.train() == ["finished"] * WORKERS
        yield late_run
        for cluster in late_run.clusters:
            cluster.close()
        lighthouse.kill()
    wait_for_closed_groups()


def test_the_others_continue_without_the_late_worker(run: LateRun):
    for worker in range(WORKERS):
        late = run.of(worker, WorkersLate)[0]
        assert late.step == 3 * EVERY
        assert [worker_name(name) for name in late.workers] == [f"worker {LATE} on {run.clusters[LATE].host}"]
        assert not run.of(worker, WorkersLost)


def test_the_tokens_of_the_late_worker_are_merged_once(run: LateRun):
    interval = range(2 * EVERY + 1, 3 * EVERY + 1)
    steps = [step for step in run.of(LATE, StepDone) if step.step in interval]
    own_tokens = sum(round(step.share * step.target_tokens) for step in steps)
    for worker in range(WORKERS):
        merged = run.of(worker, LateStepsMerged)[0]
        assert merged.step > 3 * EVERY
        assert (merged.steps, merged.target_tokens) == ([EVERY], [own_tokens])
        assert merged.weights == pytest.approx([own_tokens / sum(step.target_tokens for step in steps)])


def test_no_step_is_repeated_and_the_others_take_all(run: LateRun):
    for worker in range(WORKERS):
        steps = [step.step for step in run.of(worker, StepDone)]
        assert all(earlier < later for earlier, later in itertools.pairwise(steps))
        assert steps[-1] == STEPS
        if worker == LATE:
            assert len(steps) < STEPS
        else:
            assert steps == list(range(1, STEPS + 1))


def test_all_have_the_same_weights_at_the_end(run: LateRun):
    for worker in range(1, WORKERS):
        assert not run.of(worker, ReplicasDrifted)
        for name, tensor in run.weights(worker).items():
            assert torch.equal(tensor, run.weights(0)[name])
