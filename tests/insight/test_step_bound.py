from dataclasses import replace

import pytest

from dragoman.insight.answers.device_use import answer_device_use
from dragoman.insight.run_history import build_history
from dragoman.insight.step_bound import bound_of

from .synthetic_runs import H200_STEPS, gpu_run, synthetic_run

SMALL, BASE = H200_STEPS["small"], H200_STEPS["transformer-base"]
BOUNDS = {
    "tiny": "launches",
    "small": "launches",
    "transformer-base": "arithmetic",
    "modern": "arithmetic",
    "transformer-big": "arithmetic",
    "transformer-big, small batch": "memory",
    "transformer-base, small batch": "memory",
}


@pytest.mark.parametrize("recipe", BOUNDS)
def test_the_bound_of_each_recipe(recipe):
    history = build_history(gpu_run(H200_STEPS[recipe]))
    bound = bound_of(history)
    assert bound.kind == BOUNDS[recipe]
    assert 0 < bound.share <= 1
    assert answer_device_use(history).text.endswith(f"; bound by {bound.kind}.")


def test_the_longest_wait_is_the_bound_if_it_is_longer_than_the_work():
    assert bound_of(build_history(gpu_run(replace(BASE, data_s=0.05)))).kind == "input"
    assert bound_of(build_history(gpu_run(replace(BASE, data_s=0.01)))).kind == "arithmetic"
    waits = {"communication_s": "communication", "straggler_s": "straggler", "compile_s": "compiling"}
    for part, kind in waits.items():
        recorded = synthetic_run(60, step=lambda done, part=part: replace(done, step_s=5.0, **{part: 4.1}))
        assert bound_of(build_history(recorded)).kind == kind


def test_computing_is_the_bound_of_devices_whose_peaks_are_not_known():
    assert bound_of(build_history(synthetic_run(60))).kind == "computing"
    assert bound_of(build_history(synthetic_run(8))) is None


def test_the_device_answer_has_the_drivers_view_and_the_reason_of_the_bound():
    found = answer_device_use(build_history(gpu_run(BASE)))
    assert found.text.startswith("GPU busy 89 % of the time (95 % by the driver); MFU ")
    assert "arithmetic at peak would take" in found.evidence[-1]
    assert any("its memory was at work 40 % of the time" in line for line in found.evidence)
