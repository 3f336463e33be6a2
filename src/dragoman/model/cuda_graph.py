"""CUDA graphs: GPU work that is captured once and replayed without Python, in training and in decoding.

A step launches about a thousand kernels of a few microseconds each: launched one by one, they wait for the CPU.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from dragoman.batching.packed_batch import Batch
from dragoman.model.architecture import Architecture
from dragoman.model.kernels.availability import has_kernels, supports_head_size
from dragoman.model.precision import Precision

BatchSize = tuple[int, int]
"""Source and target tokens."""


def uses_cuda_graphs(precision: Precision, architecture: Architecture, device: torch.device) -> bool:
    """True if training runs compiled and captured, on the Triton kernels: they need bf16 and certain head sizes."""
    return has_kernels(device) and precision.dtype == torch.bfloat16 and supports_head_size(architecture.head_size)


class GraphCapturer:
    """Captures CUDA graphs on one stream, with one memory pool: only one of them may run at a time.

    Memory belongs to the stream that allocated it and to the pool of the graphs that use it, so both are kept for all
    captures.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._last_graph: torch.cuda.CUDAGraph | None = None
        """The pool keeps its memory for the next capture as long as one graph of it exists."""

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Run the block on the capture stream, after the current stream's work and before what is queued on it next.

        Warm up here: what happens only the first time cannot be captured, and autograd remembers the stream on which
        gradients were first made.
        """
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:  # Also after an error: tensors of the current stream may be freed there.
            current.wait_stream(self._stream)

    def capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Capture `work` without running it; call this inside of `on_stream`.

        Unlike `torch.cuda.graph`, this neither synchronizes nor empties the allocator's cache.
        """
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads prepare batches meanwhile, and may allocate pinned memory.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()  # Otherwise the stream would stay in capture mode.
            raise
        graph.capture_end()
        self._last_graph = graph
        return graph


def thread_capturer(device: torch.device) -> GraphCapturer:
    """The capturer of the current thread, so that its searches share one stream and one memory pool."""
    return _thread_capturer(device, threading.get_ident())


@lru_cache(maxsize=8)
def _thread_capturer(device: torch.device, thread: int) -> GraphCapturer:  # noqa: ARG001 (part of the cache key)
    return GraphCapturer(device)


@dataclass(frozen=True)
class _CapturedPass:
    graph: torch.cuda.CUDAGraph
    inputs: Batch
    gradients: Sequence[Tensor | None]


class GraphedPass:
    """Forward and backward pass over micro-batches of a few fixed sizes, replayed from CUDA graphs.

    The first micro-batch of a size runs as it is, as a warm-up; the second is captured. Both run inside of `compiling`.
    A graph writes to the same memory each time: gradients are valid until the next micro-batch.
    """

    def __init__(
        self,
        run_pass: Callable[[Batch], None],
        parameters: Sequence[nn.Parameter],
        device: torch.device,
        compiling: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._run_pass = run_pass
        self._parameters = parameters
        self._device = device
        self._compiling = compiling
        self._capturer = GraphCapturer(device)
        self._warmed_up: set[BatchSize] = set()
        self._captured: dict[BatchSize, _CapturedPass] = {}

    def __call__(self, micro_batch: Batch) -> None:
        size = micro_batch.source.tokens.shape[0], micro_batch.target.tokens.shape[0]
        if size in self._captured:
            self._replay(self._captured[size], micro_batch)
            return
        with self._compiling():
            if size not in self._warmed_up:
                self._warm_up(micro_batch)
                self._warmed_up.add(size)
            else:
                self._captured[size] = self._capture(micro_batch)
                self._replay(self._captured[size], micro_batch)  # The first replay also loads the graph.

    def _warm_up(self, micro_batch: Batch) -> None:
        self._clear_gradients()
        with self._capturer.on_stream():
            self._run_pass(micro_batch)

    def _replay(self, captured: _CapturedPass, micro_batch: Batch) -> None:
        for buffer, tensor in zip(captured.inputs.tensors(), micro_batch.tensors(), strict=True):
            buffer.copy_(tensor, non_blocking=True)
        captured.graph.replay()
        for parameter, gradient in zip(self._parameters, captured.gradients, strict=True):
            parameter.grad = gradient

    def _capture(self, micro_batch: Batch) -> _CapturedPass:
        self._clear_gradients()
        inputs = micro_batch.to(self._device)
        # The pool cannot use what the allocator has cached for other passes, so that is freed first.
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        with self._capturer.on_stream():
            graph = self._capturer.capture(lambda: self._run_pass(inputs))
        return _CapturedPass(graph, inputs, [parameter.grad for parameter in self._parameters])

    def _clear_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
