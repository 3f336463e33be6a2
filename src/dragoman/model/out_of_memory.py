"""Memory that runs out, and how torch says so."""

_NO_MEMORY = ("out of memory", "ALLOC_FAILED", "not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: RuntimeError) -> bool:
    """CUDA, its libraries, Triton, the allocator of a CPU and C++ say it in words of their own."""
    return any(words in str(error) for words in _NO_MEMORY)
