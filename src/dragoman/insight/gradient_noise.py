"""How noisy gradients are, and what that says about the size of a batch.

A worker's gradient is the true one plus noise that falls with its tokens. How much more the workers' own gradients
measure than their mean therefore tells both apart, at no cost but a norm (McCandlish et al. 2018). Their ratio is a
number of tokens: batches that are much smaller waste no token but need more steps, batches that are much larger need as
many steps and waste tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dragoman.events import StepDone
from dragoman.terminal import count

FEWEST = 10
"""Measurements below which the noise drowns in its own noise."""
FAR = 4.0
"""A batch that is so many times larger or smaller than the noise scale is worth a word."""


@dataclass(frozen=True)
class Noise:
    """The noise scale of the gradient, beside the batch that it was measured with."""

    tokens: float
    batch_tokens: float
    measurements: int

    @property
    def words(self) -> str:
        if self.tokens > FAR * self.batch_tokens:
            advice = "batches are small: larger ones, on more machines, would save as many steps as they add tokens"
        elif self.tokens < self.batch_tokens / FAR:
            advice = "batches are large: smaller ones would learn as much in a step"
        else:
            advice = "the batch suits it"
        return (
            f"the gradient's noise scale is about {count(self.tokens)} target tokens, and a batch has "
            f"{count(self.batch_tokens)}: {advice} ({self.measurements} measurements)"
        )


def gradient_noise(steps: Sequence[StepDone]) -> Noise | None:
    """From the steps in which it was measured; None where those are too few, or say nothing."""
    measured = [step for step in steps if step.worker_gradient_norm_sq > 0 and len(step.ready_s) > 1]
    if len(measured) < FEWEST:
        return None
    # Both are estimates a step: of noise times tokens, and of the true gradient's square norm. Means come first.
    variances = [(step.worker_gradient_norm_sq - step.gradient_norm**2) / (len(step.ready_s) - 1) for step in measured]
    noise = fmean(variance * step.target_tokens for variance, step in zip(variances, measured, strict=True))
    signal = fmean(step.gradient_norm**2 - variance for variance, step in zip(variances, measured, strict=True))
    if noise <= 0 or signal <= 0:
        return None
    return Noise(noise / signal, fmean(step.target_tokens for step in measured), len(measured))
