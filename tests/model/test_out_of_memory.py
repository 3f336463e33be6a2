"""Out-of-memory errors: their recognition, and sizes that adapt to them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.out_of_memory import FittingSize, is_out_of_memory


def test_out_of_memory_errors_of_cpu_and_gpu_are_recognized() -> None:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert is_out_of_memory(failure.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


@given(full=st.integers(1, 10**6), fits=st.lists(st.integers(1, 10**6), min_size=1, max_size=2000))
def test_a_size_follows_what_fits(full: int, fits: list[int]) -> None:
    """Whatever fits at each use: sizes stay below the full one, tries that fail are rare, and the full one returns."""
    size, failed_tries, was_full = FittingSize(full), 0, True
    for most in fits:
        tried = size.next()
        assert 1 <= tried <= full
        failed_tries += tried == full > most and not was_full
        was_full = tried == full <= most
        while size.size > most:
            size.lower(max(1, size.size // 2))
    assert failed_tries <= len(fits) / FittingSize.RETRY_AFTER
    lowered = size.size < full
    uses = [size.next() for _ in range(10**5)] if lowered else [full]
    assert uses[-1] == full
