"""Step time and its parts."""

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.gradient_noise import estimate_gradient_noise
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import (
    STEP_PARTS,
    count_steps,
    mean_of,
    mean_part_s,
    measured_steps,
    median_step_s,
)
from dragoman.number_format import count, percent

NOISE_WINDOW_STEPS = 4000
"""Latest steps for the gradient noise scale, which grows during training."""


def answer_step_time(history: RunHistory) -> Answer:
    key, question = "step", "What is a step, and how long does one take?"
    steps = history.steady_spans
    if not steps:
        return unknown(key, question, "no step is done yet")
    step_s = mean_of(steps, "step_s")
    parts_s = {part: mean_part_s(steps, part) for part in STEP_PARTS}
    breakdown = "; ".join(
        f"{part} {part_s:.3f} s ({percent(part_s / step_s)})" for part, part_s in parts_s.items() if part_s > 0
    )
    evidence = [
        breakdown if measured_steps(history) else "its parts were not measured",
        f"median {median_step_s(steps):.3g} s over {count(count_steps(steps))} steps, without the first "
        "steps of each session",
    ]
    if (noise := estimate_gradient_noise(history.steady_steps[-NOISE_WINDOW_STEPS:])) is not None:
        evidence.append(noise.describe())
    tokens = mean_of(steps, "source_tokens") + mean_of(steps, "target_tokens")
    text = f"One update of the weights from {count(mean_of(steps, 'pairs'))} sentence pairs; it takes {step_s:.3f} s"
    return Answer(key, question, f"{text}, {count(tokens / step_s)} tokens/s.", evidence)
