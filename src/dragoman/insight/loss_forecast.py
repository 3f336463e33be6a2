"""Forecast of the validation loss: a power law of the steps, and what the decay of the learning rate adds to it."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from dragoman.errors import DragomanError
from dragoman.events import EvaluationDone
from dragoman.insight.run_history import RunHistory
from dragoman.insight.validation_curve import MIN_POINTS, Forecast, extrapolate
from dragoman.recipe import settings_from_json
from dragoman.schedule import learning_rate_at

DECAYING_POLICIES = ("cosine", "linear", "warmup_stable_decay")
"""Schedules that end at a learning rate of zero."""
MAX_DECAY_GAIN = 0.3
"""Part of the loss by which a decay to zero lowers it, at most. With warmup_stable_decay it was 18 to 25 % lower than
with constant after 600 steps of `tiny`, the most with twice the recipe's learning rate."""
MAX_WARM_UP_GAIN = 0.5
"""Part of the loss by which it falls below a power law of earlier steps while the learning rate rises, at most. It was
24 to 47 % lower in two runs that were in their warm-up to the end, forecast at a quarter and at half of them."""
GRID_STEPS = 1000
"""Points at which the learning rate is summed."""


def forecast_loss(history: RunHistory, to_step: int) -> Forecast:
    """The validation loss at a later step. A decay of the learning rate until then is part of it, and so is a rise."""
    done = history.trained_evaluations
    # The steep fall at the beginning says little about the end.
    tail = done[max(0, min(len(done) // 3, len(done) - MIN_POINTS)) :]
    rate = _learning_rate(history)
    forecast = _forecast(history, tail, rate, to_step)
    if rate is None or warm_up_end(history) is None:
        return forecast
    low = max(_straight_on(tail, rate, to_step), (1 - MAX_WARM_UP_GAIN) * forecast.value)
    return replace(forecast, low=min(forecast.low, low), value=min(forecast.value, (low + forecast.value) / 2))


def warm_up_end(history: RunHistory) -> int | None:
    """The step until which the learning rate rises, if the last evaluation came before it."""
    rate = _learning_rate(history)
    if rate is None:
        return None
    # A decay may begin before the warm-up has ended.
    steps = range(1, history.setting("schedule", "warmup_steps") + 1)
    end = 1 + bisect_left(steps, True, hi=max(0, len(steps) - 1), key=lambda step: rate(step + 1) <= rate(step))
    return end if history.trained_evaluations[-1].step < end else None


def _forecast(
    history: RunHistory, tail: Sequence[EvaluationDone], rate: Callable[[int], float] | None, to_step: int
) -> Forecast:
    """The forecast after the warm-up."""
    steps = [evaluation.step for evaluation in tail]
    by_steps = _extrapolate_or_stay(steps, tail, to_step)
    decays = history.setting("schedule", "policy") in DECAYING_POLICIES
    if rate is None or not decays or (to_step > history.total_steps and history.started.start is None):
        return by_steps
    if to_step > history.total_steps:
        # A longer run has a schedule of its own: the last losses of this one are flat because its rates were low.
        *sums, total = _sum_rates(rate, [*steps, history.total_steps], history.total_steps)
        return replace(_extrapolate_or_stay(sums, tail, total * to_step / history.total_steps), step=to_step)
    # Smaller rates advance less: at worst as far as the sum of the rates says. At best the loss falls as before, and
    # the decay lowers it further, because updates become less noisy.
    *sums, total = _sum_rates(rate, [*steps, to_step], history.total_steps)
    by_rates = _extrapolate_or_stay(sums, tail, total)
    highest = max(rate(step) for step in range(1, steps[-1] + 1, max(1, steps[-1] // GRID_STEPS)))
    # The rates of fine-tuning are so low that updates are hardly noisy: their decay adds nothing.
    max_gain = MAX_DECAY_GAIN if history.started.start is None else 0.0
    gain = max_gain * max(0.0, rate(steps[-1]) - rate(to_step)) / highest
    low_value = by_steps.value * (1 - gain)
    low, high = min(by_steps.low * (1 - gain), by_rates.low), max(by_steps.high, by_rates.high)
    return Forecast(to_step, (low_value + by_rates.value) / 2, low, high)


def _straight_on(tail: Sequence[EvaluationDone], rate: Callable[[int], float], to_step: int) -> float:
    """The loss if it falls with the sum of the learning rates as it did: while these rise, it falls faster and faster.

    A power law does not know that, and runs above such a curve.
    """
    first, last, total = _sum_rates(rate, [tail[0].step, tail[-1].step, to_step], to_step)
    fall = max(0.0, tail[0].nll - tail[-1].nll)
    return max(0.0, tail[-1].nll - fall * (total - last) / (last - first))


def _extrapolate_or_stay(steps: Sequence[float], tail: Sequence[EvaluationDone], to_step: float) -> Forecast:
    """A curve that no longer falls is expected to stay at its value, and one that falls, not to rise."""
    losses = [evaluation.nll for evaluation in tail]
    forecast = extrapolate(steps, losses, to_step)
    if forecast is None:
        return Forecast(round(to_step), losses[-1], min(losses), max(losses))
    recent = max(losses[-2:])  # Two, because of noise.
    return Forecast(forecast.step, min(forecast.value, recent), max(0.0, forecast.low), min(forecast.high, recent))


def _learning_rate(history: RunHistory) -> Callable[[int], float] | None:
    """The learning rate by step; None if the settings are of another version."""
    try:
        settings = settings_from_json(history.started.settings)
    except DragomanError:
        return None
    return lambda step: learning_rate_at(step, settings.schedule, history.total_steps, settings.model.d_model)


def _sum_rates(rate: Callable[[int], float], steps: Sequence[int], total_steps: int) -> list[float]:
    """The sum of the learning rates up to each step."""
    width = max(1, total_steps // GRID_STEPS)
    sums = list(accumulate((rate(step) for step in range(width, total_steps + width, width)), initial=0.0))
    sums.append(sums[-1])
    return [
        sums[step // width] + step % width / width * (sums[step // width + 1] - sums[step // width]) for step in steps
    ]
