"""Work on a GPU that is recorded once for each size of its input, and then replayed without Python.

A step is a thousand kernels of a few microseconds: started one by one, they wait for the processor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dragoman.batching.packing import Batch

Size = tuple[int, int]


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    gradients: Sequence[Tensor | None]


class GraphedPass:
    """Writes the gradients of pieces of fixed sizes. The first piece of a size runs as it is, the second is recorded.

    A recording writes to the same memory each time: gradients are there until the next piece.
    """

    def __init__(self, work: Callable[[Batch], None], parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        self._work = work
        self._parameters = parameters
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._seen: set[Size] = set()
        self._recordings: dict[Size, _Recording] = {}

    def __call__(self, piece: Batch) -> None:
        size = piece.source.tokens.shape[0], piece.target.tokens.shape[0]
        if size not in self._seen:
            self._run_aside(piece)
            self._seen.add(size)
            return
        if size not in self._recordings:
            self._recordings[size] = self._record(piece)
        recording = self._recordings[size]
        for place, tensor in zip(recording.inputs.tensors(), piece.tensors(), strict=True):
            place.copy_(tensor, non_blocking=True)
        recording.graph.replay()
        for parameter, gradient in zip(self._parameters, recording.gradients, strict=True):
            parameter.grad = gradient

    def _run_aside(self, piece: Batch) -> None:
        """On the stream that records later: autograd remembers where gradients were first made."""
        self._forget_gradients()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._work(piece)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _record(self, piece: Batch) -> _Recording:
        self._forget_gradients()
        inputs = piece.to(self._device)
        graph = torch.cuda.CUDAGraph()
        # All recordings share one memory: only one of them runs at a time, and only gradients outlive it.
        pool = next((other.graph.pool() for other in self._recordings.values()), None)
        # Other threads make batches meanwhile, and may ask for pinned memory.
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
            self._work(inputs)
        return _Recording(graph, inputs, [parameter.grad for parameter in self._parameters])

    def _forget_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
