"""Recognition of out-of-memory errors."""

import pytest
import torch

from dragoman.model.out_of_memory import is_out_of_memory


def test_out_of_memory_errors_of_cpu_and_gpu_are_recognized() -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert is_out_of_memory(failure.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
