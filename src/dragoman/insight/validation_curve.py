"""The validation curve: where it is heading, when it turned, and how much of it is noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

FEWEST = 5
"""Points below which a curve says nothing about its future."""
EXPONENTS = [0.05 * n for n in range(1, 41)]


@dataclass(frozen=True)
class Forecast:
    """What a curve will be at a later step, with the range of what fits as well."""

    step: int
    value: float
    low: float
    high: float


def extrapolate(steps: Sequence[int], values: Sequence[float], to_step: int) -> Forecast | None:
    """Losses fall like a power of the steps: `a + b * step ** -c`. None where there are too few, or they do not fall.

    Each exponent gives a line, fitted by least squares. Those that fit nearly as well as the best one are the range.
    """
    if len(values) < FEWEST or to_step <= 0:
        return None
    fits = [fit for exponent in EXPONENTS if (fit := _fit(steps, values, exponent, to_step)) is not None]
    if not fits:
        return None
    best_error, best = min(fits)
    freedom = max(1, len(values) - 3)
    spread = (best_error / freedom) ** 0.5
    near = [value for error, value in fits if error <= best_error * (1 + 4 / freedom) + 1e-12]
    return Forecast(to_step, best, min(near) - spread, max(near) + spread)


def _fit(steps: Sequence[int], values: Sequence[float], exponent: float, to_step: int) -> tuple[float, float] | None:
    """The squared error of the best line in `step ** -exponent`, and its value at a step; None where it rises."""
    xs = [step**-exponent for step in steps]
    mean_x, mean_y = fmean(xs), fmean(values)
    variance = sum((x - mean_x) ** 2 for x in xs)
    if variance == 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, values, strict=True)) / variance
    if slope <= 0:
        return None
    error = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, values, strict=True))
    return error, mean_y + slope * (to_step**-exponent - mean_x)


def noise(values: Sequence[float]) -> float:
    """How far neighbours differ from a straight line through those beside them: what a curve does by chance."""
    bends = [abs(b - (a + c) / 2) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return median(bends) if bends else 0.0


@dataclass(frozen=True)
class Turn:
    """Where a curve was lowest before it rose for good."""

    index: int
    rise: float


def find_turn(values: Sequence[float], least_rise: float) -> Turn | None:
    """The lowest point, if at least two later ones are all above it and the last ones by more than noise explains."""
    if len(values) < FEWEST:
        return None
    lowest = min(range(len(values)), key=values.__getitem__)
    later = values[lowest + 1 :]
    if len(later) < 2:
        return None
    rise = fmean(later[-2:]) - values[lowest]
    # The steep fall of the beginning bends too, and is no noise.
    tail = values[lowest:] if len(later) > 2 else values
    threshold = max(least_rise * abs(values[lowest]), 4 * noise(tail))
    return Turn(lowest, rise) if rise > threshold else None


def is_flat(values: Sequence[float], least_gain: float) -> bool:
    """Whether the last third of a rising score is hardly better than the third before."""
    third = len(values) // 3
    if third < 2:
        return False
    return fmean(values[-third:]) - fmean(values[-2 * third : -third]) < least_gain
