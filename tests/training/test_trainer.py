from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import Phase, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dragoman.events import (
    CheckpointsAveraged,
    EvaluationDone,
    Event,
    ReplicasDrifted,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    StepSkipped,
    WorkerFailed,
)
from dragoman.model.model_folder import load_model

from ..small import tiny
from .recorded_run import FakeScorer, RecordedRun, inject_nan_losses
from .thread_run import Fault, outcomes, train_in_threads


def test_training_lowers_the_loss(data, tmp_path):
    run = RecordedRun(tiny("training.steps=60", "schedule.learning_rate=0.01", "evaluation.every=60"), data, tmp_path)
    assert run.train() == "finished"
    assert run.losses[-1] < 0.8 * run.losses[0]
    assert run.of(RunEnded)[0].reason == "finished"


def test_a_run_records_its_start_steps_and_evaluations(data, tmp_path):
    run = RecordedRun(tiny(), data, tmp_path)
    run.train()
    started = run.of(RunStarted)[0]
    assert (started.world_size, started.resumed_step, started.total_steps) == (1, 0, 12)
    assert [event.step for event in run.of(StepDone)] == list(range(1, 13))
    assert [event.step for event in run.of(EvaluationDone)] == [5, 10, 12]


@pytest.mark.parametrize("stops", [(5,), (3, 4, 9), (1, 2)])
def test_an_interrupted_run_resumes_bit_for_bit(data, tmp_path, stops):
    whole = RecordedRun(tiny(), data, tmp_path / "whole")
    whole.train()
    losses = []
    for stop_step in (*stops, None):
        part = RecordedRun(tiny(), data, tmp_path / "parts")
        if stop_step is not None:
            part.on_event = lambda event, part=part, stop_step=stop_step: setattr(
                part.stop, "requested", isinstance(event, StepDone) and event.step >= stop_step - 1
            )
        assert part.train() == ("finished" if stop_step is None else "interrupted")
        losses += part.losses
    assert losses == whole.losses
    first, second = (load_model(tmp_path / name / "checkpoints" / "last").model for name in ("whole", "parts"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("change", ["optimizer.algorithm=muon", "optimizer.ema_decay=0.9"])
def test_the_state_of_each_optimizer_is_resumed(data, tmp_path, change):
    whole = RecordedRun(tiny(change), data, tmp_path / "whole")
    whole.train()
    RecordedRun(tiny(change, "training.steps=7"), data, tmp_path / "parts").train()
    resumed = RecordedRun(tiny(change), data, tmp_path / "parts")
    resumed.train()
    assert resumed.losses == whole.losses[7:]
    assert resumed.of(EvaluationDone)[-1].loss == whole.of(EvaluationDone)[-1].loss


def test_non_finite_steps_are_skipped_and_training_continues(data, tmp_path, monkeypatch):
    run = RecordedRun(tiny(), data, tmp_path)
    inject_nan_losses(monkeypatch, range(6, 8), run)
    assert run.train() == "finished"
    assert [(event.step, event.consecutive) for event in run.of(StepSkipped)] == [(6, 1), (7, 2)]
    assert all(torch.isfinite(p).all() for p in load_model(tmp_path / "checkpoints" / "last").model.parameters())


@pytest.mark.parametrize(("scores", "last_step"), [([3, 2, 1, 9], 15), ([3, 4, 5, 6], 20)])
def test_a_run_that_no_longer_improves_stops_early(data, tmp_path, scores, last_step):
    settings = tiny("training.steps=20", "evaluation.patience=2", "evaluation.patience_metric=bleu")
    run = RecordedRun(settings, data, tmp_path, FakeScorer(scores))
    assert run.train() == ("patience" if last_step < 20 else "finished")
    assert run.of(StepDone)[-1].step == last_step
    best = (tmp_path / "checkpoints" / "best-bleu").resolve().name
    assert best == f"step-{5 * (1 + scores.index(max(scores[: last_step // 5]))):08d}"


@pytest.mark.parametrize(("settings", "reason"), [([], "finished"), (["evaluation.patience=1"], "patience")])
def test_repeating_a_run_that_has_ended_changes_nothing(data, tmp_path, settings, reason):
    settings = tiny("checkpoint.average=2", "evaluation.patience_metric=bleu", *settings)
    first = RecordedRun(settings, data, tmp_path, FakeScorer([3, 2, 1, 1]))
    assert first.train() == reason
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    for _ in range(2):
        again = RecordedRun(settings, data, tmp_path)
        assert again.train() == reason
        assert again.of(StepDone) == again.of(EvaluationDone) == again.of(CheckpointsAveraged) == []
        (ended,), (ended_before,) = again.of(RunEnded), first.of(RunEnded)
        assert ended.step == ended_before.step
        assert ended.elapsed_s <= ended_before.elapsed_s
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")} == files


def test_the_time_before_the_first_step_counts_once_there_is_one(data, tmp_path):
    run = RecordedRun(tiny("training.steps=1"), data, tmp_path)
    run.trainer._replica.add_elapsed(1000.0)
    run.train()
    assert run.of(RunEnded)[0].elapsed_s > 1000


def test_the_recorded_gradient_norm_is_the_one_before_clipping(data, tmp_path):
    run = RecordedRun(tiny("optimizer.clip_norm=0.01", "training.steps=3"), data, tmp_path)
    run.train()
    assert min(event.gradient_norm for event in run.of(StepDone)) > 0.01


METHODS = {
    "plain": (["exchange.method=plain"], False),
    "bf16": (["exchange.method=bf16"], False),
    "powersgd": (["exchange.method=powersgd", "exchange.powersgd_rank=2"], False),
    "local, streaming": (["exchange.method=local", "exchange.every=3"], False),
    "local, at once": (["exchange.method=local", "exchange.every=3"], True),
}
IN_THREADS = ("model.dropout=0", "evaluation.bleu=false", "training.max_skipped_steps=3", "batch.tokens=500")
HOSTS = ("a", "b", "c")

faults = st.builds(
    Fault,
    rank=st.integers(0, 1),
    kind=st.sampled_from(["loss not finite", "gradient not finite"]),
    first=st.integers(1, 14),
    count=st.integers(1, 7),
)
interruptions = st.builds(
    Fault,
    rank=st.integers(0, 1),
    kind=st.sampled_from(["stop", "out of memory"]),
    first=st.integers(1, 14),
)


@pytest.mark.parametrize("method", METHODS)
@given(st.lists(faults, max_size=2), st.lists(interruptions, max_size=1), st.sampled_from([0, 0.9]))
@hypothesis_settings(max_examples=8, phases=[Phase.explicit, Phase.generate])  # Shrinking a hang takes minutes.
@example([Fault(1, "gradient not finite", first=1, count=2)], [], 0)
@example([Fault(1, "gradient not finite", first=6, count=5)], [], 0.9)
@example([Fault(1, "loss not finite", first=7, count=100)], [], 0)
@example([Fault(0, "loss not finite", first=6, count=5)], [Fault(1, "stop", first=7)], 0)
def test_all_workers_take_the_same_decisions_whatever_happens_to_one(data, method, faults, interruptions, ema_decay):
    overrides, elastic = METHODS[method]
    settings = tiny(*IN_THREADS, *overrides, f"optimizer.ema_decay={ema_decay}")
    with TemporaryDirectory() as folder:
        workers = train_in_threads(settings, data, Path(folder), HOSTS[:2], [*faults, *interruptions], elastic=elastic)
        assert len(outcomes(workers)) == 1
        for kind in (RolledBack, EvaluationDone, RunEnded, ReplicasDrifted):
            decisions = [[without_time(event) for event in worker.of(kind)] for worker in workers]
            assert decisions == [decisions[0]] * len(workers)
        assert workers[0].of(ReplicasDrifted) == []
        for checkpoint in Path(folder).glob("*/checkpoints/step-*"):
            weights = load_model(checkpoint).model.parameters()
            assert all(bool(parameter.isfinite().all()) for parameter in weights)


def without_time(event: Event) -> Event:
    times = {"at_s": 0.0, "elapsed_s": 0.0, "evaluation_s": 0.0}
    return replace(event, **{name: value for name, value in times.items() if hasattr(event, name)})


@pytest.mark.parametrize("method", METHODS)
def test_a_replica_that_drifts_is_reported_by_all_workers(data, tmp_path, method):
    overrides, elastic = METHODS[method]
    settings = tiny(*IN_THREADS, *overrides, "training.steps=7")
    flipped = Fault(1, "weight flipped", first=5)  # Evaluated after step 5: before the next exchange of weights.
    workers = train_in_threads(settings, data, tmp_path, HOSTS, [flipped], elastic=elastic)
    expected = [] if method.startswith("local") else [(5, ["worker 1 on b"], True), (7, ["worker 1 on b"], True)]
    for worker in workers:
        drifts = [(event.step, event.workers, event.has_majority) for event in worker.of(ReplicasDrifted)]
        assert drifts == expected


def test_the_error_that_ends_a_run_is_recorded_in_one_sentence(data, tmp_path):
    class FailingScorer(FakeScorer):
        def score(self, translations, references):
            raise ValueError("no such metric\nand more")

    run = RecordedRun(tiny(), data, tmp_path, FailingScorer())
    with pytest.raises(ValueError, match="no such metric"):
        run.train()
    (failed,) = run.of(WorkerFailed)
    assert failed.error == "ValueError: no such metric"
    assert failed.step == run.of(StepDone)[-1].step
