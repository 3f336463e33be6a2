"""Conditions of the Triton kernels."""

import torch

from dragoman.model.kernels.availability import has_kernels, supports_head_size


def test_kernels_need_a_gpu_and_a_head_size_that_is_a_power_of_two() -> None:
    assert not has_kernels(torch.device("cpu"))
    assert [size for size in (8, 16, 48, 64, 80, 128) if supports_head_size(size)] == [16, 64, 128]
