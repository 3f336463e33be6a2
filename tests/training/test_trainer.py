import pytest
import torch

from dragoman.events import EvaluationDone, RunEnded, RunStarted, StepDone, StepSkipped, WorkerFailed
from dragoman.model.model_folder import load_model

from ..small import tiny
from .recorded_run import FakeScorer, RecordedRun, inject_nan_losses


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


def test_the_recorded_gradient_norm_is_the_one_before_clipping(data, tmp_path):
    run = RecordedRun(tiny("optimizer.clip_norm=0.01", "training.steps=3"), data, tmp_path)
    run.train()
    assert min(event.gradient_norm for event in run.of(StepDone)) > 0.01


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
