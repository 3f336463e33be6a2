"""Memory that runs out, and how torch says so."""

import torch

_NO_MEMORY = ("not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA has an exception of its own; on a CPU the allocator and C++ say it in words of theirs."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)
