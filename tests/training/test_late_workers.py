"""An elastic run in which a worker is late."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.events import Event, ReplicasDrifted, StepDone, WorkersLost, WorldChanged
from dragoman.late_worker_events import LateStepsMerged, WorkersLate
from dragoman.settings import Settings
from dragoman.telemetry.worker_losses import worker_name
from dragoman.training.train_step import TrainStep

from ..distributed.lighthouse_process import Lighthouse
from ..small import tiny
from .elastic_run import WORKERS, ElasticRun, finished_run

LATE = 2
"""The last worker is late."""
EVERY, OVERLAP, STEPS = 6, 2, 120
LATE_STEP = 3 * EVERY
"""The step in which it is slow."""
LAST_STEP = LATE_STEP + 1 + OVERLAP
"""The others finish a fragment after the next step, which it has sent before. They wait for it with the following."""
SETTINGS = (
    "exchange.method=local", f"exchange.every={EVERY}", f"exchange.overlap={OVERLAP}", "exchange.quorum=0.6",
    "exchange.grace_s=3",
    f"training.steps={STEPS}", "evaluation.every=1000", "evaluation.bleu=false", "checkpoint.every=1000",
    "model.dropout=0",
)  # fmt: skip


class LateRun(ElasticRun):
    """A run whose last worker stays in a step until the others have continued without it, and joins them later."""

    def __init__(self, settings: Settings, data: DataSet, folder: Path, lighthouse: Lighthouse) -> None:
        self._continued, self._asked = threading.Event(), threading.Event()
        super().__init__(settings, data, folder, lighthouse)
        for worker, trainer in enumerate(self.trainers):
            self._slow_down(trainer._train_step, worker)

    def recorder(self, worker: int) -> Callable[[Event], None]:
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


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateRun]:
    with finished_run(LateRun, tiny(*SETTINGS), data, tmp_path_factory.mktemp("late")) as late_run:
        yield late_run


def test_the_others_continue_without_the_late_worker(run: LateRun):
    for worker in range(WORKERS):
        late = run.of(worker, WorkersLate)[0]
        assert late.step == LAST_STEP
        assert [worker_name(name) for name in late.workers] == [f"worker {LATE} on {run.clusters[LATE].host}"]
        assert not run.of(worker, WorkersLost)


def test_the_tokens_of_the_late_worker_are_merged_once(run: LateRun):
    interval = range(LAST_STEP - EVERY + 1, LAST_STEP + 1)
    steps = [step for step in run.of(LATE, StepDone) if step.step in interval]
    own_tokens = sum(round(step.share * step.target_tokens) for step in steps)
    for worker in range(WORKERS):
        merged = run.of(worker, LateStepsMerged)[0]
        assert merged.step > LAST_STEP
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
    assert not any(run.of(worker, ReplicasDrifted) for worker in range(WORKERS))
    run.assert_equal_weights()
