"""The same training on a GPU: bf16, variable-length attention, and memory that runs out for real."""

import pytest
import torch

from dragoman.events import MicroBatchesCut, RunStarted, StepDone
from dragoman.launch.local import BeamJudge

from .conftest import Recording, tiny

pytestmark = pytest.mark.gpu

WIDE = ("model.d_model=64", "model.heads=2", "schedule.rate=0.01", "training.steps=60", "evaluation.every=60")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_on_a_gpu_follows_the_curve_of_a_cpu(data, tmp_path, precision, monkeypatch):
    settings = tiny(*WIDE, "model.dropout=0", f"training.precision={precision}")
    recording = Recording(settings, data, tmp_path / "gpu", BeamJudge(data, settings.decoding))
    assert recording.train() == "finished"
    assert recording.of(RunStarted)[0].precision == precision
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    reference = Recording(settings.model_copy(update={"training": tiny(*WIDE).training}), data, tmp_path / "cpu")
    reference.train()
    ours, theirs = ([event.loss for event in run.of(StepDone)] for run in (recording, reference))
    assert ours[:10] == pytest.approx(theirs[:10], rel=1e-3 if precision == "fp32" else 2e-2)
    assert ours[-1] < 0.8 * ours[0]


def test_memory_that_runs_out_on_a_gpu_is_met_by_cutting(data, tmp_path):
    sizes = ("batch.tokens=20000", "training.micro_tokens=20000", "model.d_model=128", "model.feed_forward=512")
    settings = tiny(*sizes, "training.steps=3", "evaluation.bleu=false")
    recording = Recording(settings, data, tmp_path)
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 60 * 2**20) / total)
    try:
        assert recording.train() == "finished"
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert recording.of(MicroBatchesCut)
    assert len(recording.of(StepDone)) == 3
