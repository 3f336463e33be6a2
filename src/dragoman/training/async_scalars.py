"""Scalars on their way from a device to Python. Reading one at once would make a GPU wait for Python."""

import torch
from torch import Tensor


class AsyncScalars:
    """A few numbers that are copied to the host in the background; on a CPU they are there already."""

    def __init__(self, scalars: Tensor) -> None:
        self._copied: torch.cuda.Event | None = None
        self._scalars = scalars
        if scalars.is_cuda:
            self._scalars = torch.empty(scalars.shape, dtype=scalars.dtype, pin_memory=True)
            self._scalars.copy_(scalars, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def values(self) -> list[float]:
        """The numbers; waits until they have been copied."""
        if self._copied is not None:
            self._copied.synchronize()
        values: list[float] = self._scalars.tolist()
        return values
