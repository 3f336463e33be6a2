"""Work on a GPU that is recorded once for each size of its input, and then replayed without Python.

A step of a small model is a thousand kernels of a few microseconds: started one by one, they wait for the processor.
"""

from collections.abc import Callable

import torch

from dragoman.model.packing import Batch

Size = tuple[int, int]


class Replay:
    """Runs a pass over pieces of fixed sizes. The first piece of a size runs as it is, the second one is recorded."""

    def __init__(self, work: Callable[[Batch], None], device: torch.device) -> None:
        self._work = work
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._seen: set[Size] = set()
        self._recordings: dict[Size, tuple[torch.cuda.CUDAGraph, Batch]] = {}

    def __call__(self, piece: Batch) -> None:
        size = piece.source.tokens.shape[0], piece.target.tokens.shape[0]
        if size not in self._seen:
            self._seen.add(size)
            self._run_aside(piece)
            return
        if size not in self._recordings:
            self._recordings[size] = self._record(piece)
        graph, inputs = self._recordings[size]
        for place, tensor in zip(inputs.tensors(), piece.tensors(), strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()

    def _run_aside(self, piece: Batch) -> None:
        """On the stream that records later: autograd remembers where gradients were first made."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            self._work(piece)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def _record(self, piece: Batch) -> tuple[torch.cuda.CUDAGraph, Batch]:
        inputs = piece.to(self._device)
        graph = torch.cuda.CUDAGraph()
        # All recordings share one memory: only one of them runs at a time, and nothing inside outlives it.
        pool = next((other.pool() for other, _ in self._recordings.values()), None)
        # Other threads make batches meanwhile, and may ask for pinned memory.
        with torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
            self._work(inputs)
        return graph, inputs
