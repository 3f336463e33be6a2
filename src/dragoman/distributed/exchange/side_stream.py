"""A CUDA stream beside the one that computes, for the copies and the quantization of an exchange.

What runs on it begins once the compute stream has produced its input, and then runs beside later steps. Only the thread
that averages waits for it; the thread that trains never waits for the device. On a CPU nothing of this is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class SideStream:
    """The stream of one worker's exchange."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # High priority: its kernels are few and short, and the network waits for them.
        on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device, priority=-1) if on_gpu else None  # type: ignore[no-untyped-call]

    @contextmanager
    def after_compute(self, *inputs: Tensor) -> Iterator[None]:
        """Queue work that begins once the compute stream has produced the inputs. Called by the thread that trains."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        for tensor in inputs:
            tensor.record_stream(self._stream)  # Its memory must not be reused before this stream has read it.
        with torch.cuda.stream(self._stream):
            yield

    @contextmanager
    def active(self) -> Iterator[None]:
        """Queue work behind what is on this stream. Called by the thread that averages."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            yield

    def hand_over(self, *results: Tensor) -> None:
        """Let the compute stream wait for all work on this stream, and use its results."""
        if self._stream is not None:
            compute = torch.cuda.current_stream(self._device)
            compute.wait_stream(self._stream)
            for tensor in results:
                tensor.record_stream(compute)

    def copy_to(self, device: torch.device, tensor: Tensor) -> Tensor:
        """A copy on another device, through pinned memory. Waits for this stream alone, if the copy is on the CPU."""
        if self._stream is None or tensor.device.type == device.type:
            return tensor
        if device.type == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        self._stream.synchronize()
        return copy
