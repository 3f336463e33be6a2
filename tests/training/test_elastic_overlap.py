"""Overlapped local steps in an elastic world whose workers lose each other, although none of them has ended.

So no step may be lost: whatever part of an exchange the workers were in, all take every step once, with their share.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.distributed import elastic_cluster
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.process_group import WorkersLostError
from dragoman.events import Event, ReplicasDrifted, RunStarted, StepDone, WorkersLost
from dragoman.training.stop_signal import StopSignal

from ..small import tiny
from .elastic_run import WORKERS, ElasticRun, finished_run

STEPS = 24
SETTINGS = (
    "exchange.method=local", "exchange.every=6", "training.shares=[3,2,1]", f"training.steps={STEPS}",
    "evaluation.every=1000", "evaluation.bleu=false", "checkpoint.every=11", "model.dropout=0",
    "optimizer.ema_decay=0.9",
)  # fmt: skip


def lose_connection(patch: pytest.MonkeyPatch, losses: dict[tuple[int, str], int]) -> None:
    """Let workers lose the others, by worker and method of the exchange, in one of its calls."""
    calls = dict.fromkeys(losses, 0)

    def patched(name):
        original = getattr(LocalSteps, name)

        def call(self, *given):
            key = (self._cluster.worker, name)
            if key in losses:
                calls[key] += 1
                if calls[key] == losses[key]:
                    raise WorkersLostError([], "connection closed")
            return original(self, *given)

        return call

    for _, name in losses:
        patch.setattr(LocalSteps, name, patched(name))


@pytest.mark.parametrize(
    ("overlap", "wire_format", "losses"),
    [
        (1, "int8", {(0, "_finish"): 3}),
        (1, "bf16", {(1, "_start_average"): 5}),
        (1, "int8", {(2, "_finish"): 11}),  # Of all weights, before a checkpoint.
        (2, "int8", {(1, "_finish"): 3, (2, "_finish"): 3}),
        (2, "bf16", {(2, "_finish"): 6}),  # Of the fragment before these.
        (3, "int8", {(2, "_finish"): 2}),
        (3, "int8", {(0, "_start_average"): 3, (1, "_finish"): 7}),
    ],
    ids=str,
)
def test_no_step_is_lost_or_repeated_and_all_stay_equal(data, tmp_path, monkeypatch, overlap, wire_format, losses):
    lose_connection(monkeypatch, losses)
    settings = tiny(*SETTINGS, f"exchange.overlap={overlap}", f"exchange.wire_format={wire_format}")
    with finished_run(ElasticRun, settings, data, tmp_path) as run:
        check(run)


class RunWithNewcomer(ElasticRun):
    """A run whose last worker starts later than the others, which are slow until it is there."""

    def __init__(self, *given: Any) -> None:
        self._started, self._joined = threading.Event(), threading.Event()
        super().__init__(*given)
        newcomer, first = self.trainers[-1], self.trainers[0]
        train, take_step = newcomer.train, first._take_step

        def train_later(stop: StopSignal) -> str:
            self._started.wait()
            return train(stop)

        def take_step_slowly() -> None:
            if not self._joined.is_set():
                time.sleep(STEP_ALONE_S)
            take_step()

        newcomer.train, first._take_step = train_later, take_step_slowly

    def recorder(self, worker: int) -> Callable[[Event], None]:
        def record(event: Event) -> None:
            self.events[worker].append(event)
            if isinstance(event, StepDone) and event.step == NEWCOMER_STEP:
                self._started.set()
            elif isinstance(event, RunStarted) and worker == WORKERS - 1:
                self._joined.set()

        return record


NEWCOMER_STEP, LONG = 5, 300
"""Step at which the newcomer starts, and all steps of the run."""
STEP_ALONE_S = 0.1
"""Time of a step until it is there, so that the run does not end before."""


def test_workers_that_wait_join_between_synchronisations_of_all_weights(data, tmp_path, monkeypatch):
    monkeypatch.setattr(elastic_cluster, "ASSEMBLY_S", 0.0)
    rare = (f"training.steps={LONG}", f"checkpoint.every={LONG}", "training.shares=equal")
    with finished_run(RunWithNewcomer, tiny(*SETTINGS, *rare, "exchange.overlap=2"), data, tmp_path) as run:
        first_step = run.of(WORKERS - 1, StepDone)[0].step
        assert NEWCOMER_STEP < first_step < LONG
        for worker in range(WORKERS - 1):
            assert [step.step for step in run.of(worker, StepDone)] == list(range(1, LONG + 1))
            assert not run.of(worker, WorkersLost)
        run.assert_equal_weights()


def check(run: ElasticRun) -> None:
    assert any(run.of(worker, WorkersLost) for worker in range(WORKERS))
    steps = [run.of(worker, StepDone) for worker in range(WORKERS)]
    for taken in steps:
        assert [step.step for step in taken] == list(range(1, STEPS + 1))
    for together in zip(*steps, strict=True):
        assert sum(step.share for step in together) == pytest.approx(1), "of the pairs of the batch"
    assert not any(run.of(worker, ReplicasDrifted) for worker in range(WORKERS))
    run.assert_equal_weights()
