"""How much longer workers' own steps must be, so that their mean is as long as one step on the global batch.

A worker's gradient is noisier than the global batch's. Adam divides by noise and signal together, so the mean of the
workers' steps is shorter than one step on the global batch. The ratio is estimated from how much the workers' changes
differ.
"""

from torch import Tensor

from dragoman.distributed.exchange.delta_sketch import norm_ratio

MOMENTUM_STEPS = 19
"""Number of gradients whose arithmetic mean has the same noise as an exponential moving average with decay 0.9."""
SMOOTHING = 0.9
"""Decay of the moving average of the ratio, per synchronisation."""


class StepLength:
    """Moving average of the ratio, estimated at each synchronisation."""

    def __init__(self, workers: int, interval: int) -> None:
        self.ratio = 1.0
        self._workers, self._interval = workers, interval

    def update(self, sketches: Tensor) -> None:
        """Take the sum of all workers' sketches of their changes into account, unless nothing has changed."""
        ratio = norm_ratio(sketches, self._workers)
        if ratio is not None:
            estimate = step_length_ratio(ratio, self._workers, MOMENTUM_STEPS + self._interval)
            self.ratio = SMOOTHING * self.ratio + (1 - SMOOTHING) * estimate


def step_length_ratio(norm_ratio: float, world_size: int, steps: int) -> float:
    """Length of Adam's step on the global batch, relative to the mean of its workers' steps.

    `norm_ratio`: squared norm of the workers' mean delta over that of one worker's delta, from 1 if all are equal to
    1 / world_size if they are independent. A delta averages the noise of `steps` gradients; from that follows the noise
    of a single one.
    """
    noise = steps * max(0.0, 1 - norm_ratio) / max(norm_ratio - 1 / world_size, 1e-3)  # noise over signal, one worker
    return float(((1 + noise) / (1 + noise / world_size)) ** 0.5)
