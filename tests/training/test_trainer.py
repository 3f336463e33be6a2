import math

import pytest
import torch

from dragoman.errors import DragomanError
from dragoman.events import (
    CheckpointRejected,
    CheckpointsAveraged,
    EvaluationDone,
    MicroBatchesSplit,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    StepSkipped,
)
from dragoman.model.model_folder import load_model
from dragoman.model.transformer import Transformer

from .conftest import Parrot, Recording, tiny


def losses(*recordings: Recording) -> list[tuple[int, float]]:
    return [(event.step, event.loss) for recording in recordings for event in recording.of(StepDone)]


def test_training_lowers_the_loss(data, tmp_path):
    recording = Recording(
        tiny("training.steps=60", "schedule.learning_rate=0.01", "evaluation.every=60"), data, tmp_path
    )
    assert recording.train() == "finished"
    steps = recording.of(StepDone)
    assert steps[-1].loss < 0.8 * steps[0].loss
    assert recording.of(RunEnded)[0].reason == "finished"


def test_a_run_records_what_it_did(data, tmp_path):
    recording = Recording(tiny(), data, tmp_path)
    recording.train()
    started = recording.of(RunStarted)[0]
    assert (started.world_size, started.resumed_step, started.total_steps) == (1, 0, 12)
    assert [event.step for event in recording.of(StepDone)] == list(range(1, 13))
    assert [event.step for event in recording.of(EvaluationDone)] == [5, 10, 12]
    lengths = data.pairs("valid").lengths()
    assert recording.of(EvaluationDone)[0].target_tokens == lengths[:, 1].sum()
    assert recording.of(EvaluationDone)[0].samples[0]["source"] == data.text("valid")[0][0]


@pytest.mark.parametrize("stops", [(5,), (3, 4, 9), (1, 2)])
def test_an_interrupted_run_goes_on_bit_for_bit(data, tmp_path, stops):
    whole = Recording(tiny(), data, tmp_path / "whole")
    whole.train()
    parts = []
    for stop_at in (*stops, None):
        part = Recording(tiny(), data, tmp_path / "parts")
        if stop_at is not None:
            part.on_event = lambda event, part=part, stop_at=stop_at: setattr(
                part.stop, "requested", isinstance(event, StepDone) and event.step >= stop_at - 1
            )
        assert part.train() == ("finished" if stop_at is None else "interrupted")
        parts.append(part)
    assert losses(*parts) == losses(whole)
    first, second = (load_model(tmp_path / name / "checkpoints" / "last").model for name in ("whole", "parts"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("change", ["optimizer.algorithm=muon", "optimizer.ema_decay=0.9"])
def test_every_kind_of_state_is_resumed(data, tmp_path, change):
    whole = Recording(tiny(change), data, tmp_path / "whole")
    whole.train()
    Recording(tiny(change, "training.steps=7"), data, tmp_path / "parts").train()
    rest = Recording(tiny(change), data, tmp_path / "parts")
    rest.train()
    assert losses(rest) == losses(whole)[7:]
    assert rest.of(EvaluationDone)[-1].loss == whole.of(EvaluationDone)[-1].loss


def test_pieces_add_up_to_the_whole(data, tmp_path):
    off = ("model.dropout=0", "evaluation.bleu=false")
    whole = Recording(tiny(*off), data, tmp_path / "whole")
    cut = Recording(tiny(*off, "training.micro_batch_tokens=40"), data, tmp_path / "cut")
    whole.train()
    cut.train()
    assert min(event.micro_batches for event in cut.of(StepDone)) > 2
    for (_, a), (_, b) in zip(losses(whole), losses(cut), strict=True):
        assert b == pytest.approx(a, rel=1e-5)


def test_a_share_too_large_for_memory_is_cut_and_recorded(data, tmp_path, monkeypatch):
    """The failure comes in the middle of a step, after some gradients have been added up."""
    off = ("model.dropout=0", "evaluation.bleu=false", "training.micro_batch_tokens=100")
    healthy = Recording(tiny(*off), data, tmp_path / "healthy")
    healthy.train()
    forward = Transformer.forward

    def starved(self, batch, smoothing=0.0):
        if self.training and batch.labels.numel() > 80:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch, smoothing)

    monkeypatch.setattr(Transformer, "forward", starved)
    recording = Recording(tiny(*off), data, tmp_path / "starved")
    assert recording.train() == "finished"
    (cut,) = recording.of(MicroBatchesSplit)  # Batches that had been made ahead are cut anew, and do not fail again.
    assert cut.reason == "CUDA out of memory"
    for (_, a), (_, b) in zip(losses(healthy), losses(recording), strict=True):
        assert b == pytest.approx(a, rel=1e-5)


def test_memory_that_never_suffices_is_an_error_and_no_endless_loop(data, tmp_path, monkeypatch):
    def starved(self, batch, smoothing=0.0):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Transformer, "forward", starved)
    with pytest.raises(torch.OutOfMemoryError):
        Recording(tiny(), data, tmp_path).train()


def poison(monkeypatch, steps: range, recording: Recording) -> None:
    """Make the loss of some steps not a number."""
    forward = Transformer.forward

    def poisoned(self, batch, smoothing=0.0):
        loss, nll = forward(self, batch, smoothing)
        done = len(recording.of(StepDone)) + len(recording.of(StepSkipped))
        return (loss * math.nan, nll) if self.training and done + 1 in steps else (loss, nll)

    monkeypatch.setattr(Transformer, "forward", poisoned)


def test_a_step_that_is_not_finite_is_skipped_and_training_goes_on(data, tmp_path, monkeypatch):
    recording = Recording(tiny(), data, tmp_path)
    poison(monkeypatch, range(6, 8), recording)
    assert recording.train() == "finished"
    assert [(event.step, event.consecutive) for event in recording.of(StepSkipped)] == [(6, 1), (7, 2)]
    assert all(torch.isfinite(p).all() for p in load_model(tmp_path / "checkpoints" / "last").model.parameters())


def test_many_in_a_row_send_the_run_back_with_a_lower_rate(data, tmp_path, monkeypatch):
    recording = Recording(tiny("training.max_skipped_steps=3"), data, tmp_path)
    poison(monkeypatch, range(6, 9), recording)
    assert recording.train() == "finished"
    (back,) = recording.of(RolledBack)
    assert (back.from_step, back.to_step, back.learning_rate_factor) == (8, 5, 0.5)
    rates = {event.step: event.learning_rate for event in recording.of(StepDone)}
    assert rates[6] == pytest.approx(rates[5] / 2)


def test_a_run_that_cannot_be_saved_gives_up_with_an_explanation(data, tmp_path, monkeypatch):
    recording = Recording(tiny("training.max_skipped_steps=2"), data, tmp_path)
    poison(monkeypatch, range(6, 1000), recording)
    assert recording.train() == "diverged"
    assert len(recording.of(RolledBack)) == 3
    assert recording.of(RunEnded)[0].reason == "diverged"


def test_a_run_that_diverges_before_its_first_checkpoint_says_what_to_change(data, tmp_path, monkeypatch):
    recording = Recording(tiny("training.max_skipped_steps=2"), data, tmp_path)
    poison(monkeypatch, range(1, 1000), recording)
    with pytest.raises(DragomanError, match=r"lower schedule\.learning_rate"):
        recording.train()


@pytest.mark.parametrize(("metric", "scores", "last"), [("bleu", [3, 2, 1, 9], 15), ("bleu", [3, 4, 5, 6], 20)])
def test_patience_ends_a_run_that_no_longer_gets_better(data, tmp_path, metric, scores, last):
    settings = tiny("training.steps=20", "evaluation.patience=2", f"evaluation.patience_metric={metric}")
    recording = Recording(settings, data, tmp_path, Parrot(scores))
    assert recording.train() == ("patience" if last < 20 else "finished")
    assert recording.of(StepDone)[-1].step == last
    best = (tmp_path / "checkpoints" / "best-bleu").resolve().name
    assert best == f"step-{5 * (1 + scores.index(max(scores[: last // 5]))):08d}"


def test_the_end_averages_the_last_checkpoints(data, tmp_path):
    recording = Recording(tiny("checkpoint.average=2"), data, tmp_path)
    recording.train()
    (averaged,) = recording.of(CheckpointsAveraged)
    assert averaged.names == ["step-00000012", "step-00000010"]
    parts = [load_model(tmp_path / "checkpoints" / name).model for name in averaged.names]
    mean = load_model(tmp_path / "checkpoints" / "averaged").model
    for a, b, both in zip(*(model.parameters() for model in (*parts, mean)), strict=True):
        torch.testing.assert_close(both, (a + b) / 2)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(data, tmp_path):
    Recording(tiny("training.steps=8"), data, tmp_path).train()
    weights = tmp_path / "checkpoints" / "step-00000008" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    recording = Recording(tiny(), data, tmp_path)
    recording.train()
    assert recording.of(CheckpointRejected)[0].name == "step-00000008"
    assert recording.of(RunStarted)[0].resumed_step == 5


def test_clipping_bounds_the_update(data, tmp_path):
    recording = Recording(tiny("optimizer.clip_norm=0.01", "training.steps=3"), data, tmp_path)
    recording.train()
    norms = [event.gradient_norm for event in recording.of(StepDone)]
    assert min(norms) > 0.01, "the norm that is recorded is the one before clipping"


def test_the_largest_seed_trains(data, tmp_path):
    recording = Recording(tiny("training.seed=1000000000000", "training.steps=1"), data, tmp_path)
    assert recording.train() == "finished"
