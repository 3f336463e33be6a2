"""Sums over steps: all that a report says of the long past of a run, which it shows as means over many steps."""

from dataclasses import replace

from dragoman.events import StepDone, StepsSummed

SUMMED_FIELDS = (
    "loss", "nll", "gradient_norm", "source_tokens", "target_tokens", "pairs", "step_s", "data_s", "compute_s",
    "compile_s", "communication_s", "straggler_s", "optimizer_s", "host_s", "overlapped_s", "sent_bytes",
)  # fmt: skip


def exposed_data_wait_s(step: StepDone) -> float:
    """Data wait that delayed the step. In older logs a GPU may have computed while Python waited for a batch."""
    return min(step.data_s, max(0.0, step.step_s - step.compute_s))


def separate_compile_s(step: StepDone) -> float:
    """Compile time that no other part contains. In older logs the others contain all of it, and sum to the step."""
    waits_s = step.straggler_s + step.communication_s + step.host_s
    others_s = step.compute_s + step.optimizer_s + step.data_s + waits_s
    return min(step.compile_s, max(0.0, step.step_s - others_s))


def as_sum(step: StepDone | StepsSummed) -> StepsSummed:
    """A step as a sum of one."""
    if isinstance(step, StepsSummed):
        return step
    values = {name: getattr(step, name) for name in SUMMED_FIELDS}
    values |= {"data_s": exposed_data_wait_s(step), "compile_s": separate_compile_s(step)}
    return StepsSummed(
        at_s=step.at_s,
        worker=step.worker,
        first_step=step.step,
        steps=1,
        step=step.step,
        learning_rate=step.learning_rate,
        highest_learning_rate=step.learning_rate,
        highest_learning_rate_step=step.step,
        step_s_counts={f"{step.step_s:.3g}": 1},
        **values,
    )


def add_sums(earlier: StepsSummed, later: StepsSummed) -> StepsSummed:
    """The sum of two sums over successive steps."""
    highest = later if later.highest_learning_rate > earlier.highest_learning_rate else earlier
    return replace(
        later,
        first_step=earlier.first_step,
        steps=earlier.steps + later.steps,
        highest_learning_rate=highest.highest_learning_rate,
        highest_learning_rate_step=highest.highest_learning_rate_step,
        step_s_counts=add_counts(earlier.step_s_counts, later.step_s_counts),
        **{name: getattr(earlier, name) + getattr(later, name) for name in SUMMED_FIELDS},
    )


def add_counts(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    """The sum of two counts, without changing either."""
    total = dict(first)
    for key, count in second.items():
        total[key] = total.get(key, 0) + count
    return total
