"""Mean of the workers' values in a few bits each, with error feedback.

Two workers send each other all of their values. More of them average one part of the values each: a worker receives all
others' values of its part (reduce-scatter), and sends their mean to all (all-gather). So the bytes that a worker sends
hardly grow with the number of workers. What rounding loses, in a worker's values and in the mean, is added to the next
ones.
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
        parts = workers if workers > 2 else 1  # Two would send as many bytes in parts, but round twice.
        part = -(-count // (parts * BLOCK)) * BLOCK
        with self._side_stream.after_compute(values):
            wanted = nn.functional.pad(values, (0, parts * part - count)).view(parts, part)
            if self._lost is not None:
                wanted = wanted + self._lost
            message = quantize(wanted, self._bits)
            self._lost = wanted - dequantize(message, part, self._bits)
        average = self._average_by_parts if parts > 1 else self._average
        averaged = self._background.submit(average, self._cluster.collectives, message, part)

        def finish() -> Tensor:
            mean = averaged.result().flatten()[:count]
            self._side_stream.hand_over(mean)
            return mean

        return finish

    def _average(self, world: Collectives, message: Tensor, count: int) -> Tensor:
        """The mean of the messages of all workers."""
        with torch.no_grad(), self._side_stream.active():
            return self._gather(world, message, count).mean(0)

    def _average_by_parts(self, world: Collectives, message: Tensor, part: int) -> Tensor:
        """The means of all parts, after both exchanges."""
        with torch.no_grad(), self._side_stream.active():
            received = world.all_to_all_async(self._side_stream.copy_to(world.message_device, message))()
            mean = dequantize(self._side_stream.copy_to(message.device, received), part, self._bits).mean(0)
            if self._lost_by_mean is not None:
                mean += self._lost_by_mean
            packed = quantize(mean, self._bits)
            self._lost_by_mean = mean - dequantize(packed, part, self._bits)
            return self._gather(world, packed, part)

    def _gather(self, world: Collectives, message: Tensor, count: int) -> Tensor:
        """The values in the messages of all workers."""
        messages = world.all_gather_async(self._side_stream.copy_to(world.message_device, message))()
        return dequantize(self._side_stream.copy_to(message.device, torch.stack(messages)), count, self._bits)
