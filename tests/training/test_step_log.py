"""Steps that are read late keep their own times, and no second is lost."""

from typing import cast

import numpy as np
import torch

from dragoman.batching.data_loader import Position, WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.events import StepDone
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training.async_scalars import AsyncScalars
from dragoman.training.step_log import MAX_UNREAD_STEPS, StepLog, StepRecord, SyncTimes


def step_record(step: int, loss: float = 2.0) -> StepRecord:
    batch = WorkerBatch(
        position=Position(), next_position=Position(0, step), pairs=np.empty(0, np.int64), micro_batches=[],
        micro_batch_tokens=1, source_tokens=10, target_tokens=10, worker_target_tokens=10, global_pairs=1,
    )  # fmt: skip
    return StepRecord(
        batch=batch, step=step, target_tokens=10, learning_rate=0.1, compute_s=0.0, compile_s=0.0, sync=SyncTimes(),
        sent_bytes=0, worker_gradient_norm_sq=0.0, micro_batches=1,
        scalars=AsyncScalars(torch.tensor([loss, loss, 1.0])),
    )  # fmt: skip


def test_steps_recorded_late_keep_their_own_times_and_no_second_is_lost():
    now = 0.0
    recorded: list[StepDone] = []
    timer = StepTimer(lambda: now)
    cluster = Cluster(0, 1, 1, torch.device("cpu"))
    step_log = StepLog(cluster, timer.take, lambda event: recorded.append(cast(StepDone, event)))
    for step in range(1, 6):
        timer.enter("compute")
        now += step
        step_log.add(step_record(step), wait=False)
    assert len(recorded) == 5 - MAX_UNREAD_STEPS
    now += 0.5  # while the last numbers arrive
    step_log.flush()
    step_log.flush()
    cluster.close()
    assert [event.step_s for event in recorded] == [1, 2, 3, 4, 5.5]
