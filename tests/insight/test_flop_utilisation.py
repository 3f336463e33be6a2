from dataclasses import replace

import pytest

from dragoman import events
from dragoman.events import PeakMeasured
from dragoman.insight.answers.device_use import answer_device_use
from dragoman.insight.flop_utilisation import describe_flop_utilisation, judge_peak
from dragoman.insight.run_history import build_history

from .synthetic_runs import synthetic_run

H200 = "NVIDIA H200"


def utilisation(peak: PeakMeasured, *, device: str = "GPU", step_s: float = 1.0, attention: float = 0.0):
    """The MFU of one worker that does 9.03 TFLOP in each step, without attention."""
    recorded = [
        replace(event, device=device, attention_flops_per_token=attention)
        if isinstance(event, events.RunStarted)
        else event
        for event in synthetic_run(60, world=1, step=lambda done: replace(done, step_s=step_s))
        if not isinstance(event, PeakMeasured)
    ]
    history = build_history([replace(peak, at_s=recorded[0].at_s - 1), *recorded])
    return describe_flop_utilisation(history, history.steady_steps)


def test_a_plausible_measurement_is_the_peak():
    found = utilisation(PeakMeasured(flops_per_s=792e12, device=H200, precision="bf16"), step_s=0.03)
    assert found.text == "MFU 38 % (301 of 792 TFLOP/s)"
    assert "80 % of the data sheet's 989 TFLOP/s" in found.evidence[0]


@pytest.mark.parametrize("flops_per_s", [8.64e12, 1.1e15])
@pytest.mark.parametrize("is_old_log", [False, True])
def test_an_implausible_measurement_is_replaced_by_the_data_sheet_and_says_so(flops_per_s, is_old_log):
    names = {} if is_old_log else {"device": H200, "precision": "bf16"}
    found = utilisation(PeakMeasured(flops_per_s=flops_per_s, **names), device=H200, step_s=0.03)
    assert found.text == "MFU 30 % (301 of 989 TFLOP/s)"
    assert "data sheet of NVIDIA H200, dense bf16, because the measured" in found.evidence[0]


def test_a_plausible_peak_that_training_exceeds_is_replaced_too():
    found = utilisation(PeakMeasured(flops_per_s=250e12, device=H200, precision="bf16"), step_s=0.03)
    assert found.text == "MFU 30 % (301 of 989 TFLOP/s)"
    assert "training did 301 TFLOP/s, more than the measured peak of 250 TFLOP/s" in found.evidence[0]


def test_without_a_data_sheet_an_exceeded_or_scattered_peak_is_not_known():
    for peak in (
        PeakMeasured(flops_per_s=8e12, device="CPU"),
        PeakMeasured(flops_per_s=1e13, device="CPU", spread=0.4),
    ):
        found = utilisation(peak, device="CPU")
        assert found.text == "MFU not known (9.03 TFLOP/s)"
        assert "peak not known" in found.evidence[0]


def test_no_statement_has_more_than_the_peak():
    for flops_per_s in (1e9, 1e12, 1e14, 1e18):
        for device in ("CPU", H200, "Tesla T4"):
            found = utilisation(PeakMeasured(flops_per_s=flops_per_s, device=device, precision="bf16"), device=device)
            assert "not known" in found.text or int(found.text.split()[1]) <= 100


def test_repeated_measurements_that_agree_are_the_peak_of_an_unknown_device():
    assert (
        judge_peak(PeakMeasured(flops_per_s=5e13, device="NVIDIA X", precision="bf16", spread=0.02)).flops_per_s == 5e13
    )
    assert (
        judge_peak(PeakMeasured(flops_per_s=5e13, device="NVIDIA X", precision="bf16", spread=0.3)).flops_per_s is None
    )


def test_attention_is_part_of_the_counted_flops():
    peak = PeakMeasured(flops_per_s=1e14, device="CPU")
    without, counted = (utilisation(peak, attention=flops) for flops in (0.0, 2e7))
    assert (without.text, counted.text) == ("MFU 9 % (9.03 of 100 TFLOP/s)", "MFU 10 % (10 of 100 TFLOP/s)")
    assert "without attention scores" in without.evidence[0]
    assert "with attention scores" in counted.evidence[0]


def test_the_answer_carries_the_utilisation_and_its_evidence():
    found = answer_device_use(build_history(synthetic_run(60)))
    assert "; MFU 5 % (9.03 of 200 TFLOP/s)" in found.text
    assert any("large matrix products" in line for line in found.evidence)
