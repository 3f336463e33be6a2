import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from dragoman.batching.data_loader import Position, WorkerBatch
from dragoman.distributed.step_stats import StepStats
from dragoman.events import Event, StepDone, StepSkipped
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training.step_log import MAX_UNREAD_STEPS, StepLog, StepRecord
from dragoman.training.train_step import WorkerGradients

from ..distributed.fake_cluster import FakeCluster
from ..telemetry.fake_gpu import FakeGpu

BATCH = WorkerBatch(
    position=Position(), next_position=Position(0, 1), pairs=np.empty(0, np.int64),
    first_places=np.empty((0, 2), np.int64), micro_batches=[], micro_batch_tokens=1,
    source_tokens=10, target_tokens=10, worker_target_tokens=10, global_pairs=1,
)  # fmt: skip


class LoggedSteps:
    """A step log with a clock that a test sets, and its events."""

    def __init__(self, timer: StepTimer | None = None) -> None:
        self.now = 0.0
        self.timer = timer or StepTimer(lambda: self.now)
        self.cluster = FakeCluster()
        self.events: list[Event] = []
        self.log = StepLog(self.cluster, self.timer.take, self.events.append)

    def record(
        self, step: int = 1, loss: float = 2.0, ready_s: list[float] | None = None, *, synchronous: bool = True
    ) -> StepRecord:
        ready_s = ready_s or [0.0]
        losses = torch.tensor([loss, loss])
        stats = StepStats(losses, 10, [0.0] * len(ready_s), ready_s)
        gradients = WorkerGradients(losses, micro_batches=1)
        return self.log.make_record(BATCH, gradients, stats, step, 0.1, torch.tensor(1.0), synchronous=synchronous)


@pytest.fixture
def steps() -> Iterator[LoggedSteps]:
    logged = LoggedSteps()
    yield logged
    logged.cluster.close()


def test_steps_that_are_read_late_keep_their_own_times(steps):
    for step in range(1, 6):
        steps.timer.enter("compute")
        steps.now += step
        steps.log.add(steps.record(step), wait=False)
    assert len(steps.events) == 5 - MAX_UNREAD_STEPS
    steps.now += 0.5  # Until the last numbers are read.
    steps.log.flush()
    steps.log.flush()
    assert [event.step_s for event in steps.events] == [1, 2, 3, 4, 5.5]


def test_losses_are_divided_by_the_target_tokens(steps):
    steps.log.add(steps.record(loss=25.0), wait=True)
    (event,) = steps.events
    assert isinstance(event, StepDone)
    assert (event.loss, event.nll, event.gradient_norm) == (2.5, 2.5, 1.0)


def test_a_step_keeps_the_times_of_the_world_it_was_taken_in(steps):
    """A step of rank 1 of two workers is recorded when this worker is rank 2 of three."""
    steps.cluster.rank = 1
    steps.timer.enter("exchange")
    steps.now += 5.0
    steps.log.add(steps.record(ready_s=[4.0, 1.0]), wait=False)
    steps.cluster.rank = 2
    steps.log.flush()
    (event,) = steps.events
    assert event.ready_s == [4, 1]
    assert event.straggler_s == 3


def test_local_steps_keep_the_times_of_the_world_of_their_synchronisation(steps):
    steps.cluster.rank = 1
    steps.log.note_sync(StepStats(torch.zeros(2), 10, [0.0, 0.0], [4.0, 1.0]))
    steps.cluster.rank = 2
    first, second = (steps.record(ready_s=[0.0] * 3, synchronous=False) for _ in range(2))
    assert (first.sync.ready_s, first.sync.straggler_s) == ([4, 1], 3)
    assert (second.sync.ready_s, second.sync.straggler_s) == ((), 0), "a synchronisation belongs to one step"


def test_consecutive_skips_are_counted_until_a_finite_step(steps):
    for step, loss in enumerate([float("nan"), float("inf"), 1.0, float("nan")], start=1):
        steps.log.add(steps.record(step, loss), wait=True)
    skipped = [event for event in steps.events if isinstance(event, StepSkipped)]
    assert [(event.step, event.consecutive) for event in skipped] == [(1, 1), (2, 2), (4, 1)]
    assert steps.log.consecutive_skips == 1


@pytest.mark.parametrize("wait", [False, True])
def test_steps_on_a_gpu_keep_their_own_parts_and_no_one_waits_for_the_last_ones(wait):
    gpu = FakeGpu()
    steps = LoggedSteps(gpu.timer)
    update_s, compiled_step, nan_step = 0.5, 1, 4
    for step in range(1, 6):
        gpu.timer.enter("data")
        gpu.now += 0.01
        gpu.timer.enter("compute")
        gpu.launch(step)
        if step == compiled_step:
            with gpu.timer.compiling():
                gpu.now += 20.0
        gpu.timer.enter("update")
        gpu.launch(update_s)
        gpu.timer.enter("host")
        steps.log.add(steps.record(step, loss=math.nan if step == nan_step else 2.0), wait=wait)
        assert steps.log.consecutive_skips == (wait and step == nan_step), "a loss may be read before the times"
        assert len(steps.events) == max(0, step - MAX_UNREAD_STEPS)
    assert gpu.reaches_at - gpu.now == pytest.approx(4 + 5 + 2 * update_s), "the last steps are still to be computed"
    steps.log.flush()
    done = [event for event in steps.events if isinstance(event, StepDone)]
    assert [event.step for event in done] == [1, 2, 3, 5]
    assert [event.compute_s for event in done] == pytest.approx([1, 2, 3, 5])
    assert [event.compile_s for event in done] == pytest.approx([19, 0, 0, 0]), "the GPU computed for 1 s of the 20 s"
    assert [event.optimizer_s for event in done] == pytest.approx([update_s] * 4)
    assert [event.step_s for event in done] == pytest.approx([20.51, 2.5, 3.5, 5.5])
    steps.cluster.close()
