"""Learning-rate schedules as pure functions. `docs/train.md` shows their shapes and when to use which.

Steps count from 1, so that the first update has a rate above zero.
"""

import math

from dragoman.settings import ScheduleSettings


def learning_rate_at(step: int, schedule: ScheduleSettings, total_steps: int, d_model: int) -> float:
    """The learning rate of one step."""
    if schedule.policy == "inverse_sqrt":
        return inverse_sqrt(step, schedule.learning_rate, schedule.warmup_steps, d_model)
    if step <= schedule.warmup_steps:
        return schedule.learning_rate * step / schedule.warmup_steps
    after_warmup = max(1, total_steps - schedule.warmup_steps)
    done = min(1.0, (step - schedule.warmup_steps) / after_warmup)
    if schedule.policy == "linear":
        return schedule.learning_rate * (1 - done)
    if schedule.policy == "cosine":
        return schedule.learning_rate * (1 + math.cos(math.pi * done)) / 2
    if schedule.policy == "warmup_stable_decay":
        left = total_steps - step + 1
        return schedule.learning_rate * min(1.0, max(0.0, left / (schedule.decay_fraction * total_steps)))
    return schedule.learning_rate


def inverse_sqrt(step: int, factor: float, warmup_steps: int, d_model: int) -> float:
    """Linear warm-up, then inverse square root decay; lower for wider models (Vaswani et al. 2017).

    Without warm-up steps, the decay begins at once.
    """
    warmup = step * warmup_steps**-1.5 if warmup_steps else math.inf
    return float(factor * d_model**-0.5 * min(step**-0.5, warmup))
