"""Gradient noise scale, and what it says about the batch size (McCandlish et al. 2018).

A worker's gradient is the true gradient plus noise that falls with its number of tokens. The workers' own gradients are
therefore larger than their mean, and the difference separates noise from signal at the cost of one norm. Their ratio is
a number of tokens: a much smaller batch wastes no tokens but needs more steps; a much larger one needs as many steps
and wastes tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dragoman.events import StepDone
from dragoman.number_format import count

MIN_MEASUREMENTS = 10
"""Fewer measurements give no useful estimate."""
UNSUITABLE_FACTOR = 4.0
"""A batch that differs from the noise scale by this factor is called too small or too large."""


@dataclass(frozen=True)
class GradientNoise:
    """Noise scale of the gradient, with the batch size it was measured at."""

    scale_tokens: float
    batch_tokens: float
    measurements: int

    def describe(self) -> str:
        if self.scale_tokens > UNSUITABLE_FACTOR * self.batch_tokens:
            advice = "the batch is small; a larger one, on more machines, needs fewer steps in the same proportion"
        elif self.scale_tokens < self.batch_tokens / UNSUITABLE_FACTOR:
            advice = "the batch is large; a smaller one would learn as much per step"
        else:
            advice = "the batch size is suitable"
        return (
            f"gradient noise scale about {count(self.scale_tokens)} target tokens, batch {count(self.batch_tokens)}: "
            f"{advice} ({self.measurements} measurements)"
        )


def estimate_gradient_noise(steps: Sequence[StepDone]) -> GradientNoise | None:
    """Estimate from the steps that measured it; None if they are too few or inconclusive."""
    measured = [step for step in steps if step.worker_gradient_norm_sq > 0 and len(step.ready_s) > 1]
    if len(measured) < MIN_MEASUREMENTS:
        return None
    # Each step estimates noise times tokens, and the true gradient's squared norm. The ratio is taken of their means.
    variances = [(step.worker_gradient_norm_sq - step.gradient_norm**2) / (len(step.ready_s) - 1) for step in measured]
    noise = fmean(variance * step.target_tokens for variance, step in zip(variances, measured, strict=True))
    signal = fmean(step.gradient_norm**2 - variance for variance, step in zip(variances, measured, strict=True))
    if noise <= 0 or signal <= 0:
        return None
    return GradientNoise(noise / signal, fmean(step.target_tokens for step in measured), len(measured))
