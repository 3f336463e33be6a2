"""Steps that are told late keep their own times, and no second is lost."""

from typing import cast

import numpy as np
import torch

from dragoman.batching.data_loader import Position, WorkerBatch
from dragoman.distributed.cluster import Cluster
from dragoman.events import StepDone
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training.async_scalars import AsyncScalars
from dragoman.training.step_log import UNREAD_STEPS, StepLog, StepRecord


def taken(step: int, loss: float = 2.0) -> StepRecord:
    share = WorkerBatch(
        position=Position(), next_position=Position(0, step), pairs=np.empty(0, np.int64), pieces=[], micro_tokens=1,
        source_tokens=10, target_tokens=10, my_target_tokens=10, global_pairs=1,
    )  # fmt: skip
    return StepRecord(
        share=share, step=step, tokens=10, rate=0.1, compute_s=0.0, compile_s=0.0, ready_s=[], sent_bytes=0,
        spread=0.0, pieces=1, reading=AsyncScalars(torch.tensor([loss, loss, 1.0])),
    )  # fmt: skip


def test_steps_told_late_have_their_own_times_and_lose_none():
    now = 0.0
    told: list[StepDone] = []
    anatomy = StepTimer(lambda: now)
    cluster = Cluster(0, 1, 1, torch.device("cpu"))
    ledger = StepLog(cluster, anatomy.take, lambda event: told.append(cast(StepDone, event)))
    for step in range(1, 6):
        anatomy.enter("compute")
        now += step
        ledger.add(taken(step), wait=False)
    assert len(told) == 5 - UNREAD_STEPS
    now += 0.5  # while the last numbers arrive
    ledger.tell_all()
    ledger.tell_all()
    cluster.leave()
    assert [event.step_s for event in told] == [1, 2, 3, 4, 5.5]
