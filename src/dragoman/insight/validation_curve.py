"""Shape of the validation curve: its extrapolation, a lasting rise, and a score that has become flat."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

MIN_POINTS = 5
"""Points that statements about a rise need, and with which the exponent of a power law can be estimated."""
MIN_FORECAST_POINTS = 3
"""Fewer points than this are not extrapolated."""
EXPONENTS = [0.05 * n for n in range(1, 41)]


@dataclass(frozen=True)
class Forecast:
    """Value of a curve at a later step, with the range of the fits that are nearly as good."""

    step: int
    value: float
    low: float
    high: float


def extrapolate(steps: Sequence[float], values: Sequence[float], to_step: float) -> Forecast | None:
    """Fit a power law `a + b * step ** -c`; None if points are too few or do not fall, or if the step is no later one.

    Each exponent gives a line, fitted by least squares. Those that fit nearly as well as the best one give the range,
    and where points are few, all of them. The range also covers the error of the same forecast made earlier.
    """
    forecast = _extrapolate(steps, values, to_step)
    if forecast is None:
        return None
    error = _earlier_error(steps, values, to_step)
    return Forecast(
        round(to_step),
        forecast.value,
        min(forecast.low, forecast.value - error),
        max(forecast.high, forecast.value + error),
    )


def _extrapolate(steps: Sequence[float], values: Sequence[float], to_step: float) -> Forecast | None:
    if len(values) < MIN_FORECAST_POINTS or to_step < steps[-1] or to_step <= 0:
        return None
    fits = [fit for exponent in EXPONENTS if (fit := _fit(steps, values, exponent, to_step)) is not None]
    if not fits:
        return None
    best_error, best_value = min(fits)
    freedom = max(1, len(values) - 3)
    deviation = (best_error / freedom) ** 0.5
    largest_error = best_error * (1 + 4 / freedom) + 1e-12 if len(values) >= MIN_POINTS else float("inf")
    near_values = [value for error, value in fits if error <= largest_error]
    return Forecast(round(to_step), best_value, min(near_values) - deviation, max(near_values) + deviation)


def _earlier_error(steps: Sequence[float], values: Sequence[float], to_step: float) -> float:
    """Error of the forecast of the latest value, as far ahead as `to_step` is from it, or as the points allow."""
    last = steps[-1]
    known = max(MIN_FORECAST_POINTS, sum(step <= last * last / to_step for step in steps))
    if known >= len(steps) or not steps[known - 1] < last < to_step:
        return 0.0
    earlier = _extrapolate(steps[:known], values[:known], last)
    if earlier is None:
        return 0.0
    distance = math.log(last / steps[known - 1])
    return abs(values[-1] - earlier.value) * math.log(to_step / last) / distance


def _fit(
    steps: Sequence[float], values: Sequence[float], exponent: float, to_step: float
) -> tuple[float, float] | None:
    """Squared error of the best line in `step ** -exponent`, and its value at `to_step`; None if the curve rises.

    The line ends at zero or above it, as every loss does.
    """
    xs = [step**-exponent for step in steps]
    mean_x, mean_y = fmean(xs), fmean(values)
    variance = sum((x - mean_x) ** 2 for x in xs)
    if variance == 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, values, strict=True)) / variance
    if slope <= 0:
        return None
    limit = mean_y - slope * mean_x
    if limit < 0:
        limit, slope = 0.0, sum(x * y for x, y in zip(xs, values, strict=True)) / sum(x * x for x in xs)
    error = sum((y - limit - slope * x) ** 2 for x, y in zip(xs, values, strict=True))
    return error, limit + slope * to_step**-exponent


def noise_level(values: Sequence[float]) -> float:
    """Median distance of a point from the line through its two neighbours."""
    distances = [abs(b - (a + c) / 2) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return median(distances) if distances else 0.0


@dataclass(frozen=True)
class Upturn:
    """The minimum of a curve that has risen since."""

    index: int
    rise: float


def find_upturn(values: Sequence[float], min_rise: float) -> Upturn | None:
    """The minimum, if the curve has risen since by at least this part of it and by more than noise explains."""
    if len(values) < MIN_POINTS:
        return None
    lowest = min(range(len(values)), key=values.__getitem__)
    later = values[lowest + 1 :]
    if len(later) < 2:
        return None
    rise = fmean(later[-2:]) - values[lowest]
    # The steep fall at the beginning is curved too, which is not noise.
    tail = values[lowest:] if len(later) > 2 else values
    threshold = max(min_rise * abs(values[lowest]), 4 * noise_level(tail))
    return Upturn(lowest, rise) if rise > threshold else None


def is_flat(values: Sequence[float], min_gain: float) -> bool:
    """True if the mean of a score's last third gains less than this over the third before."""
    third = len(values) // 3
    if third < 2:
        return False
    return fmean(values[-third:]) - fmean(values[-2 * third : -third]) < min_gain
