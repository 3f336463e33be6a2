import pytest
import torch
from torch import Tensor

from dragoman.training import snapshot
from dragoman.training.snapshot import Snapshot, TrainingState

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def numbers(device: str, value: float) -> dict[str, Tensor]:
    """Large enough that a GPU is still copying when Python changes them."""
    return {f"tensor {index}": torch.full((1024, 4096), value + index, device=device) for index in range(4)}


@pytest.mark.parametrize("device", DEVICES)
def test_a_snapshot_is_not_changed_by_training_that_continues(device):
    weights, trained, optimizer = (numbers(device, value) for value in (1.0, 10.0, 100.0))
    taken = Snapshot.take(TrainingState(step=3), weights, trained, {**optimizer, "steps": torch.tensor(3)})
    for tensor in (*weights.values(), *trained.values(), *optimizer.values()):
        tensor.zero_()
    taken.move_to_cpu()
    expected = (numbers("cpu", 1.0), numbers("cpu", 10.0), {**numbers("cpu", 100.0), "steps": torch.tensor(3)})
    for found, wanted in zip((taken.weights, taken.trained, taken.optimizer), expected, strict=True):
        assert found.keys() == wanted.keys()
        assert all(not tensor.is_cuda and torch.equal(tensor, wanted[name]) for name, tensor in found.items())


def test_tensors_that_are_not_contiguous_can_be_written():
    taken = Snapshot.take(TrainingState(), {"weight": torch.arange(6).reshape(2, 3).t()}, None, {})
    assert taken.weights["weight"].is_contiguous()
    assert taken.trained is None


@pytest.mark.gpu
def test_a_gpu_without_room_takes_the_snapshot_on_the_cpu(monkeypatch):
    monkeypatch.setattr(snapshot, "MIN_FREE_MEMORY", 1.0)
    taken = Snapshot.take(TrainingState(), numbers("cuda", 1.0), None, {})
    assert taken.copied is None
    assert not any(tensor.is_cuda for tensor in taken.weights.values())
