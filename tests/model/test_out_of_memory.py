"""Memory that runs out is known by what torch says."""

import pytest
import torch

from dragoman.model.out_of_memory import is_out_of_memory


def test_a_processor_without_memory_says_so_in_words_that_are_known() -> None:
    with pytest.raises(RuntimeError) as refusal:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert is_out_of_memory(refusal.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
