"""Training on a GPU: bf16, variable-length attention, CUDA graphs, and real out-of-memory errors."""

import math
import statistics
from collections.abc import Sequence

import pytest
import torch

from dragoman.decoding.validation_scorer import ValidationScorer
from dragoman.events import CheckpointSaved, EvaluationDone, MicroBatchesSplit, RunStarted, StepDone
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.settings import OptimizerSettings
from dragoman.training.optimizer import Optimizer

from ..processes import losses, train_several
from ..small import TINY, tiny
from .recorded_run import RecordedRun

pytestmark = pytest.mark.gpu

# All tests use the same shapes, so that compiled kernels are found in torch's cache.
DROPOUT = ("model.dropout=0.1", "model.attention_dropout=0.1", "model.activation_dropout=0.1")
WIDE = ("model.d_model=64", "model.heads=2", "schedule.learning_rate=0.01", "training.steps=60", "evaluation.every=60")


UNEQUAL_SHARES = {"fp32": ("plain", 1e-5), "bf16": ("bf16", 2e-2)}
"""By precision: an exchange method, and the relative tolerance of the losses of two workers against those of one."""


def test_workers_that_share_a_gpu_have_the_losses_of_one_or_take_local_steps(data, tmp_path):
    same = ("model.d_model=64", *DROPOUT, "evaluation.bleu=false")
    runs = {
        precision: (*same, f"training.precision={precision}", f"exchange.method={method}", "training.shares=[3,1]")
        for precision, (method, _) in UNEQUAL_SHARES.items()
    }
    local = ("exchange.method=local", "exchange.every=4", "exchange.wire_format=int8", "training.steps=40")
    train_several(data.path, tmp_path, {**runs, "local": (*same, "training.precision=bf16", *local)})
    for precision, (_, tolerance) in UNEQUAL_SHARES.items():
        settings = resolve("tiny", [*TINY, *same, f"training.precision={precision}"]).settings
        one = RecordedRun(settings, data, tmp_path / f"one-{precision}")
        one.train()
        expected = {event.step: event.loss for event in one.of(StepDone)}
        assert len(expected) == 12
        assert losses(tmp_path / precision) == pytest.approx(expected, rel=tolerance)
    local_losses = losses(tmp_path / "local")
    assert local_losses[40] < 0.9 * local_losses[1]
    for name in ("fp32", "bf16", "local"):
        for worker in range(2):
            recorded = RunFolder(tmp_path / name).events(worker)
            assert_parts_sum_to_steps([event for event in recorded if isinstance(event, StepDone)])


def assert_parts_sum_to_steps(steps: Sequence[StepDone]) -> None:
    for step in steps:
        waits_s = step.data_s + step.communication_s + step.straggler_s + step.host_s
        parts_s = step.compute_s + step.compile_s + step.optimizer_s + waits_s
        assert parts_s == pytest.approx(step.step_s, rel=0.02, abs=1e-3)
        assert step.step_s > 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_steps_on_a_gpu_account_for_the_time_of_the_run(data, tmp_path, precision):
    settings = tiny(
        *WIDE, "training.steps=300", "evaluation.every=150", "evaluation.bleu=false", f"training.precision={precision}"
    )
    run = RecordedRun(settings, data, tmp_path)
    assert run.train() == "finished"
    steps = run.of(StepDone)
    assert [step.step for step in steps] == list(range(1, 301))
    assert_parts_sum_to_steps(steps)
    outside_s = sum(done.evaluation_s for done in run.of(EvaluationDone))
    outside_s += sum(saved.stall_s for saved in run.of(CheckpointSaved) if saved.step < 300)
    wall_s = run.of(EvaluationDone)[-1].at_s - run.of(RunStarted)[0].at_s
    assert sum(step.step_s for step in steps) + outside_s == pytest.approx(wall_s, rel=0.02, abs=0.05)
    # Medians: other processes may use the GPU.
    early_s, late_s = (statistics.median(step.compute_s for step in part) for part in (steps[5:100], steps[100:]))
    assert 0 < early_s < 3 * late_s, "compiling does not stick"
    assert all(step.communication_s == step.straggler_s == 0 for step in steps), "one worker"
    assert (steps[0].compile_s > 0) == (precision == "bf16"), "only bf16 is compiled and captured"
    assert steps[-1].compile_s == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_on_a_gpu_has_the_losses_of_a_cpu(data, tmp_path, precision, monkeypatch):
    settings = tiny(*WIDE, *DROPOUT, f"training.precision={precision}")
    run = RecordedRun(settings, data, tmp_path / "gpu", ValidationScorer(data, settings.decoding))
    assert run.train() == "finished"
    assert run.of(RunStarted)[0].precision == precision
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    short = tiny(*WIDE, "training.steps=10").training
    reference = RecordedRun(settings.model_copy(update={"training": short}), data, tmp_path / "cpu")
    reference.train()
    assert run.losses[:10] == pytest.approx(reference.losses, rel=1e-3 if precision == "fp32" else 2e-2)
    assert run.losses[-1] < 0.8 * run.losses[0]


def test_out_of_memory_on_a_gpu_splits_the_batch(data, tmp_path):
    sizes = ("batch.tokens=20000", "training.micro_batch_tokens=20000", "model.d_model=128", "model.feed_forward=512")
    settings = tiny(*sizes, "training.steps=3", "evaluation.bleu=false")
    run = RecordedRun(settings, data, tmp_path)
    weights = torch.ones(64, 64, device="cuda", requires_grad=True)
    (weights @ weights).sum().backward()  # Allocates the cuBLAS workspaces of both threads, which no split avoids.
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 60 * 2**20) / total)
    try:
        assert run.train() == "finished"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert run.of(MicroBatchesSplit)
    assert len(run.of(StepDone)) == 3


def test_micro_batches_sum_to_the_gradient_of_the_batch(data, tmp_path):
    losses = []
    for setting in ("micro_batch_tokens=200", "micro_batch_tokens=70"):
        settings = tiny(*WIDE, *DROPOUT, "training.precision=bf16", f"training.{setting}", "training.steps=8")
        run = RecordedRun(settings, data, tmp_path / setting)
        assert run.train() == "finished"
        losses.append(run.losses)
    assert len(run.of(StepDone)) == 8
    assert all(event.micro_batches > 1 for event in run.of(StepDone))
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_non_finite_step_changes_nothing(algorithm):
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = Optimizer(model, OptimizerSettings(algorithm=algorithm, weight_decay=0.1))
    one, nan = (torch.tensor(value, device="cuda") for value in (1.0, math.nan))
    for loss, value in ((one, 1.0), (nan, math.nan), (one, 1.0)):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        before = {
            name: tensor.clone() for name, tensor in (*model.state_dict().items(), *optimizer.state_dict().items())
        }
        optimizer.clip_and_step_if_finite(0.01, loss, one, 0.5)
        after = {**model.state_dict(), **optimizer.state_dict()}
        changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
        assert bool(changed) == math.isfinite(value)
    assert all(tensor.isfinite().all() for tensor in after.values())


def test_a_run_on_a_gpu_resumes_where_it_stopped(data, tmp_path):
    settings = tiny(*WIDE, "training.precision=bf16", "training.steps=12", "checkpoint.every=6")
    whole = RecordedRun(settings, data, tmp_path / "whole")
    whole.train()
    first = RecordedRun(settings, data, tmp_path / "parts")
    first.on_event = lambda event: setattr(first.stop, "requested", isinstance(event, StepDone))
    assert first.train() == "interrupted"
    second = RecordedRun(settings, data, tmp_path / "parts")
    assert second.train() == "finished"
    steps = [event.step for event in (*first.of(StepDone), *second.of(StepDone))]
    assert steps == list(range(1, 13))
    assert all(event.step_s > 0 for event in whole.of(StepDone))
    assert second.losses[-1] == pytest.approx(whole.losses[-1], rel=1e-2)
