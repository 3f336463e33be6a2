import torch

from dragoman.training.async_scalars import AsyncScalars


def test_numbers_can_be_read_more_than_once():
    scalars = AsyncScalars(torch.tensor([1.5, 2.0]))
    assert scalars.values() == scalars.values() == [1.5, 2.0]
