from dataclasses import replace
from statistics import median

import pytest

from dragoman.events import StepDone
from dragoman.insight.step_breakdown import (
    STEP_PARTS,
    count_steps,
    mean_of,
    mean_part_s,
    median_step_s,
    split_evenly,
)
from dragoman.step_sums import add_sums, as_sum

from .synthetic_runs import synthetic_run

STEPS = [
    replace(event, step_s=0.9 + 0.01 * (7 * event.step % 23), data_s=0.3, compile_s=0.2 * (event.step % 5))
    for event in synthetic_run(101)
    if isinstance(event, StepDone)
]
SINGLE = [as_sum(step) for step in STEPS]
PAIRS = [add_sums(*SINGLE[start : start + 2]) for start in range(0, 100, 2)] + SINGLE[100:]


def test_means_over_sums_are_those_over_their_steps():
    assert count_steps(PAIRS) == count_steps(STEPS) == 101
    for field in ("nll", "step_s", "source_tokens", "sent_bytes"):
        assert mean_of(PAIRS, field) == pytest.approx(mean_of(STEPS, field))
    for part in STEP_PARTS:
        assert mean_part_s(PAIRS, part) == pytest.approx(mean_part_s(STEPS, part))


def test_the_median_has_three_digits():
    assert median_step_s(PAIRS) == float(f"{median(step.step_s for step in STEPS):.3g}")
    assert median_step_s([]) == 0.0


def test_groups_have_equal_numbers_of_steps():
    assert [count_steps(group) for group in split_evenly(SINGLE, 20)] == [20] * 5 + [1]
    assert [count_steps(group) for group in split_evenly(PAIRS, 25)] == [26, 24, 26, 24, 1]
    assert split_evenly(PAIRS, 25)[1][0].first_step == 27


def test_a_sum_knows_the_first_step_with_the_highest_learning_rate():
    rates = [replace(STEPS[number], learning_rate=rate) for number, rate in enumerate((1.0, 3.0, 3.0, 2.0))]
    first, second, third, last = map(as_sum, rates)
    total = add_sums(add_sums(first, second), add_sums(third, last))
    assert (total.highest_learning_rate, total.highest_learning_rate_step, total.learning_rate) == (3.0, 2, 2.0)
