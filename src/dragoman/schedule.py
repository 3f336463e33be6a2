"""Learning-rate schedules as pure functions. `docs/train.md` describes their shapes and uses.

Steps count from 1, and a decay would reach zero one step after the last: every update has a rate above zero.
"""

import math

from dragoman.settings import ScheduleSettings


def learning_rate_at(step: int, schedule: ScheduleSettings, total_steps: int, d_model: int) -> float:
    """The learning rate of one step."""
    if schedule.policy == "inverse_sqrt":
        return inverse_sqrt(step, schedule.learning_rate, schedule.warmup_steps, d_model)
    warmup = min(1.0, step / max(1, schedule.warmup_steps))
    # The lower of the two: where warm-up and decay overlap, the rate turns before its peak, without a jump.
    return schedule.learning_rate * min(warmup, _decay(step, schedule, total_steps))


def _decay(step: int, schedule: ScheduleSettings, total_steps: int) -> float:
    """The factor by which the decay lowers the peak rate."""
    if schedule.policy == "constant":
        return 1.0
    if schedule.policy == "warmup_stable_decay":
        decay_steps = schedule.decay_fraction * total_steps
    else:
        decay_steps = max(1, total_steps - max(1, schedule.warmup_steps) + 1)
    left = min(1.0, max(0, total_steps - step + 1) / decay_steps)
    return (1 - math.cos(math.pi * left)) / 2 if schedule.policy == "cosine" else left


def inverse_sqrt(step: int, factor: float, warmup_steps: int, d_model: int) -> float:
    """Linear warm-up, then inverse square root decay; lower for wider models (Vaswani et al. 2017).

    Without warm-up steps, the decay begins at once.
    """
    warmup = step * warmup_steps**-1.5 if warmup_steps else math.inf
    return float(factor * d_model**-0.5 * min(step**-0.5, warmup))
