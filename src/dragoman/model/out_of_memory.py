"""Recognition of out-of-memory errors."""

_MESSAGES = ("out of memory", "ALLOC_FAILED", "not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: RuntimeError) -> bool:
    """True if an error means out of memory. CUDA, its libraries, Triton, CPU allocator and C++ word it differently."""
    return any(message in str(error) for message in _MESSAGES)
