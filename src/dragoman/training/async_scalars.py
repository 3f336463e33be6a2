"""Numbers on their way from a device to Python. To ask for one at once is to let a GPU wait for the next order."""

import torch
from torch import Tensor


class AsyncScalars:
    """A few numbers of a device, which are copied when it comes to them; on a CPU they are there already."""

    def __init__(self, numbers: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        self._numbers = numbers
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def values(self) -> list[float]:
        """The numbers, waited for if need be."""
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._numbers.tolist()
        return values
