import itertools

import pytest
import torch

from dragoman.events import EvaluationDone, MicroBatchesSplit, StepDone
from dragoman.model.out_of_memory import FittingSize
from dragoman.model.transformer import Transformer

from ..small import tiny
from .recorded_run import RecordedRun

DROPOUT = (
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "model.activation_dropout=0.1",
    "evaluation.bleu=false",
)


def test_micro_batches_have_the_gradient_of_the_whole_batch(data, tmp_path):
    whole = RecordedRun(tiny(*DROPOUT), data, tmp_path / "whole")
    split = RecordedRun(tiny(*DROPOUT, "training.micro_batch_tokens=40"), data, tmp_path / "split")
    whole.train()
    split.train()
    assert min(event.micro_batches for event in split.of(StepDone)) > 2
    assert split.losses == pytest.approx(whole.losses, rel=1e-5)


def test_a_batch_that_does_not_fit_in_memory_is_split_and_recorded(data, tmp_path, monkeypatch):
    """Memory runs out in the middle of a step, when some gradients have been accumulated."""
    overrides = (*DROPOUT, "training.micro_batch_tokens=100")
    expected = RecordedRun(tiny(*overrides), data, tmp_path / "expected")
    expected.train()
    forward = Transformer.forward

    def forward_in_little_memory(self, batch, smoothing=0.0):
        if self.training and batch.labels.numel() > 80:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch, smoothing)

    monkeypatch.setattr(Transformer, "forward", forward_in_little_memory)
    run = RecordedRun(tiny(*overrides), data, tmp_path / "split")
    assert run.train() == "finished"
    (event,) = run.of(MicroBatchesSplit)  # Batches that were prefetched are split again before they fail.
    assert event.reason == "CUDA out of memory"
    assert run.losses == pytest.approx(expected.losses, rel=1e-5)


def micro_batches_with_little_memory(data, folder, monkeypatch, steps):
    """The events of splits, and the micro-batches of each step, if only some calls have little memory."""
    forward, retry = Transformer.forward, itertools.count(1)

    def forward_in_little_memory(self, batch, smoothing=0.0):
        if self.training and batch.labels.numel() > 80 and next(retry) in steps:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch, smoothing)

    monkeypatch.setattr(Transformer, "forward", forward_in_little_memory)
    monkeypatch.setattr(FittingSize, "RETRY_AFTER", 3)
    settings = tiny("training.micro_batch_tokens=100", "training.steps=80", "evaluation.bleu=false")
    run = RecordedRun(settings, data, folder)
    assert run.train() == "finished"
    return run.of(MicroBatchesSplit), [event.micro_batches for event in run.of(StepDone)]


def test_larger_micro_batches_return_when_there_is_memory_again(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        _, expected = micro_batches_with_little_memory(data, tmp_path / "enough", patch, range(0))
    splits, found = micro_batches_with_little_memory(data, tmp_path / "little", monkeypatch, range(1, 2))
    (split,) = splits
    assert found[split.step - 1] > expected[split.step - 1]
    assert found[-1] == expected[-1]


def test_larger_micro_batches_are_tried_less_and_less_often(data, tmp_path, monkeypatch):
    splits, _ = micro_batches_with_little_memory(data, tmp_path, monkeypatch, range(10**6))
    assert 2 < len(splits) <= 5, "after 3, 6, 12, 24 steps, and some more that were prefetched"


def test_an_evaluation_that_does_not_fit_in_memory_is_split(data, tmp_path, monkeypatch):
    expected = RecordedRun(tiny(*DROPOUT), data, tmp_path / "expected")
    expected.train()
    forward = Transformer.forward

    def forward_in_little_memory(self, batch, smoothing=0.0):
        if not self.training and batch.labels.numel() > 80:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch, smoothing)

    monkeypatch.setattr(Transformer, "forward", forward_in_little_memory)
    run = RecordedRun(tiny(*DROPOUT), data, tmp_path / "split")
    assert run.train() == "finished"
    found, wanted = ([each.nll for each in of.of(EvaluationDone)] for of in (run, expected))
    assert len(wanted) > 0
    assert found == pytest.approx(wanted, rel=1e-5)


def test_a_single_pair_that_does_not_fit_in_memory_is_an_error(data, tmp_path, monkeypatch):
    def forward_without_memory(self, batch, smoothing=0.0):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Transformer, "forward", forward_without_memory)
    with pytest.raises(torch.OutOfMemoryError):
        RecordedRun(tiny(), data, tmp_path).train()


def test_dropout_depends_on_the_seed(data, tmp_path):
    overrides = ("model.dropout=0.5", "training.steps=1", "evaluation.bleu=false")
    losses = []
    for seed in (1, 1, 2):
        run = RecordedRun(tiny(*overrides, f"training.seed={seed}"), data, tmp_path / str(len(losses)))
        run.train()
        losses += run.losses
    assert losses[0] == losses[1] != losses[2]


def test_the_largest_seed_is_accepted(data, tmp_path):
    run = RecordedRun(tiny("training.seed=1000000000000", "training.steps=1"), data, tmp_path)
    assert run.train() == "finished"
