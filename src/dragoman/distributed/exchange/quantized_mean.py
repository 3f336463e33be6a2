"""Mean of the workers' values in a few bits each, with error feedback.

Each worker averages one part of the values: it receives all others' parts (reduce-scatter), and sends the mean to all
(all-gather). So the bytes that a worker sends hardly grow with the number of workers. What rounding loses, in a
worker's values and in the mean, is added to the next ones.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from dragoman.distributed.cluster import Cluster, Collectives
from dragoman.distributed.exchange.quantized_blocks import BLOCK, dequantize, quantize
from dragoman.distributed.exchange.side_stream import SideStream


class QuantizedMean:
    """Means of successive values of the same parameters."""

    def __init__(self, cluster: Cluster, background: ThreadPoolExecutor, side_stream: SideStream, bits: int) -> None:
        self._cluster, self._background, self._side_stream, self._bits = cluster, background, side_stream, bits
        self.reset()

    def reset(self) -> None:
        """Forget what rounding has lost."""
        self._lost: Tensor | None = None
        """By this worker's values."""
        self._lost_by_mean: Tensor | None = None
        """By the mean of this worker's part."""

    def start(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to average in the background. Call the result for the mean, the same on all workers."""
        workers, count = self._cluster.world_size, len(values)
        part = -(-count // (workers * BLOCK)) * BLOCK
        with self._side_stream.after_compute(values):
            wanted = nn.functional.pad(values, (0, workers * part - count)).view(workers, part)
            if self._lost is not None:
                wanted = wanted + self._lost
            message = quantize(wanted, self._bits)
            self._lost = wanted - dequantize(message, part, self._bits)
        averaged = self._background.submit(self._average, self._cluster.collectives, message, part, count)

        def finish() -> Tensor:
            mean = averaged.result()
            self._side_stream.hand_over(mean)
            return mean

        return finish

    def _average(self, world: Collectives, message: Tensor, part: int, count: int) -> Tensor:
        """The mean of all parts, after both exchanges."""
        with torch.no_grad(), self._side_stream.active():
            device, message_device = message.device, world.message_device
            received = world.all_to_all_async(self._side_stream.copy_to(message_device, message))()
            mean = dequantize(self._side_stream.copy_to(device, received), part, self._bits).mean(0)
            if self._lost_by_mean is not None:
                mean += self._lost_by_mean
            packed = quantize(mean, self._bits)
            self._lost_by_mean = mean - dequantize(packed, part, self._bits)
            parts = world.all_gather_async(self._side_stream.copy_to(message_device, packed))()
            means = dequantize(self._side_stream.copy_to(device, torch.stack(parts)), part, self._bits)
            return means.flatten()[:count]
