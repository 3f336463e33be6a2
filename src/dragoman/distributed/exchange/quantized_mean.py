"""Mean of the workers' values in a few bits each, with error feedback.

Each worker averages one part of the values: it receives all others' parts (reduce-scatter), and sends the mean to all
(all-gather). So the bytes that a worker sends hardly grow with the number of workers. What rounding loses, in a
worker's values and in the mean, is added to the next ones.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.quantized_blocks import BLOCK, dequantize, quantize


class QuantizedMean:
    """Means of successive values of the same parameters."""

    def __init__(self, cluster: Cluster, background: ThreadPoolExecutor, bits: int) -> None:
        self._cluster, self._background, self._bits = cluster, background, bits
        self.reset()

    def reset(self) -> None:
        """Forget what rounding has lost."""
        self._lost: Tensor | None = None
        """By this worker's values."""
        self._lost_by_mean: Tensor | None = None
        """By the mean of this worker's part."""

    def start(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to average in the background. Call the result to wait for the mean, the same bits on all workers."""
        workers, count = self._cluster.world_size, len(values)
        part = -(-count // (workers * BLOCK)) * BLOCK
        wanted = nn.functional.pad(values, (0, workers * part - count)).view(workers, part)
        if self._lost is not None:
            wanted = wanted + self._lost
        message = quantize(wanted, self._bits)
        self._lost = wanted - dequantize(message, part, self._bits)
        sent = self._background.submit(self._exchange, message, part)
        return lambda: dequantize(torch.stack(sent.result()), part, self._bits).flatten()[:count]

    def _exchange(self, message: Tensor, part: int) -> list[Tensor]:
        """The quantized means of all parts."""
        received = self._cluster.all_to_all_async(message)()
        mean = dequantize(received, part, self._bits).mean(0)
        if self._lost_by_mean is not None:
            mean += self._lost_by_mean
        packed = quantize(mean, self._bits)
        self._lost_by_mean = mean - dequantize(packed, part, self._bits)
        return self._cluster.all_gather_async(packed)()
