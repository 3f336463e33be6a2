import pytest
import torch

from dragoman.events import CheckpointsAveraged, EvaluationDone
from dragoman.model.model_folder import load_model
from dragoman.training import checkpoint

from ..small import tiny
from .recorded_run import RecordedRun


def test_a_run_ends_with_the_average_of_its_last_checkpoints(data, tmp_path):
    run = RecordedRun(tiny("checkpoint.average=2"), data, tmp_path)
    run.train()
    (averaged,) = run.of(CheckpointsAveraged)
    assert averaged.names == ["step-00000012", "step-00000010"]
    parts = [load_model(tmp_path / "checkpoints" / name).model for name in averaged.names]
    mean = load_model(tmp_path / "checkpoints" / "averaged").model
    for a, b, both in zip(*(model.parameters() for model in (*parts, mean)), strict=True):
        torch.testing.assert_close(both, (a + b) / 2)


def test_the_best_checkpoints_are_averaged_if_so_set(data, tmp_path):
    run = RecordedRun(tiny("checkpoint.average=2", "checkpoint.average_of=best"), data, tmp_path)
    run.train()
    losses = {f"step-{event.step:08d}": event.nll for event in run.of(EvaluationDone)}
    (averaged,) = run.of(CheckpointsAveraged)
    assert averaged.names == sorted(losses, key=lambda name: losses[name])[:2]


def test_a_damaged_average_is_written_again(data, tmp_path):
    for averages in (1, 0, 1):
        run = RecordedRun(tiny("checkpoint.average=2"), data, tmp_path)
        run.train()
        assert len(run.of(CheckpointsAveraged)) == averages
        if not averages:
            (tmp_path / "checkpoints" / "averaged" / "weights.safetensors").write_bytes(b"damaged")
    assert checkpoint.find_damage(tmp_path / "checkpoints" / "averaged") is None


def test_there_is_no_average_if_the_last_checkpoint_could_not_be_written(data, tmp_path, monkeypatch):
    run = RecordedRun(tiny("checkpoint.average=2"), data, tmp_path)
    monkeypatch.setattr(checkpoint, "save_file", _raise_disk_full)
    with pytest.raises(Exception, match="The last checkpoint could not be written"):
        run.train()
    assert run.of(CheckpointsAveraged) == []


def _raise_disk_full(*arguments: object) -> None:
    raise OSError(28, "No space left on device")
