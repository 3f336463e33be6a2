"""Out-of-memory errors: their recognition, and sizes that adapt to them."""

_MESSAGES = ("out of memory", "ALLOC_FAILED", "not enough memory", "can't allocate memory", "bad_alloc")


def is_out_of_memory(error: RuntimeError) -> bool:
    """True if an error means out of memory. CUDA, its libraries, Triton, CPU allocator and C++ word it differently."""
    return any(message in str(error) for message in _MESSAGES)


class FittingSize:
    """A size that is lowered when memory runs out. From time to time the full one is tried again: another program may
    have used the memory only for a while."""

    RETRY_AFTER = 100
    """Uses of a lower size before the full one is tried again; twice as many after each try, up to `LONGEST`."""
    LONGEST = 12_800

    def __init__(self, full: int) -> None:
        self._full = self.size = full
        self._uses_left, self._retry_after = 0, self.RETRY_AFTER

    def next(self) -> int:
        """The size for the next use."""
        if self.size < self._full:
            self._uses_left -= 1
            if self._uses_left < 0:
                self.size, self._retry_after = self._full, min(2 * self._retry_after, self.LONGEST)
        return self.size

    def lower(self, size: int) -> None:
        """Memory ran out."""
        self.size, self._uses_left = min(size, self.size), self._retry_after
