"""MFU: FLOP/s that training needs, relative to the peak of the devices. An implausible peak is not used."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman.events import PeakMeasured, StepDone
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import mean_of
from dragoman.number_format import percent
from dragoman.telemetry.data_sheet_peaks import find_data_sheet_peak

PLAUSIBLE_PARTS = (0.2, 1.05)
"""Of the data sheet's peak. Large products reach most of it; clocks may be slightly higher than rated."""
MAX_SPREAD = 0.1
"""Measurements of a device that is in no table are used if the fastest rounds differ by less than this part."""


@dataclass(frozen=True)
class FlopUtilisation:
    """A phrase about the MFU of a run, and its evidence."""

    text: str
    evidence: list[str]


@dataclass(frozen=True)
class DevicePeak:
    """FLOP/s of one worker's device, None if not known, and where the value comes from."""

    flops_per_s: float | None
    origin: str


def describe_flop_utilisation(history: RunHistory, steps: Sequence[StepDone]) -> FlopUtilisation | None:
    """The MFU of these steps; None if no FLOPs were counted or no peak was measured."""
    flops_per_s = mean_step_flops(history, steps) / mean_of(steps, "step_s")
    if not flops_per_s or not history.peaks:
        return None
    total, origins = find_peak(history, flops_per_s)
    counted = "with attention scores" if history.started.attention_flops_per_token else "without attention scores"
    evidence = [f"MFU: FLOPs counted {counted}; {'; '.join(origins)}"]
    if total is None:
        return FlopUtilisation(f"MFU not known ({_tera(flops_per_s)})", evidence)
    ratio = f"{flops_per_s / 1e12:.3g} of {_tera(total)}"
    return FlopUtilisation(f"MFU {percent(flops_per_s / total)} ({ratio})", evidence)


def find_peak(history: RunHistory, flops_per_s: float) -> tuple[float | None, list[str]]:
    """FLOP/s of all devices, and where they come from; None if not known, or if training does more."""
    peaks = [judge_peak(_with_device(measured, history)) for measured in history.peaks.values()]
    total = _sum_over_workers(peaks, history.started.world_size)
    if total is not None and flops_per_s > total:
        # Training exceeds the measured peak, so it was none.
        reason = f"training did {_tera(flops_per_s)}, more than the measured peak of {_tera(total)}"
        peaks = [data_sheet_peak(_with_device(measured, history), reason) for measured in history.peaks.values()]
        total = _sum_over_workers(peaks, history.started.world_size)
    origins = list(dict.fromkeys(peak.origin for peak in peaks))
    return (None if total is None or flops_per_s > total else total), origins


def measured_part_of_data_sheet(history: RunHistory) -> float | None:
    """The measured peak relative to the data sheet's, for the slowest worker; None where there is no data sheet."""
    parts = []
    for measured in history.peaks.values():
        named = _with_device(measured, history)
        if (expected := find_data_sheet_peak(named.device, named.precision)) is not None:
            parts.append(named.flops_per_s / expected)
    return min(parts, default=None)


def judge_peak(measured: PeakMeasured) -> DevicePeak:
    """The measured peak if it is plausible, else that of the data sheet, else none."""
    expected = find_data_sheet_peak(measured.device, measured.precision)
    if expected is None:
        if measured.spread <= MAX_SPREAD:
            return DevicePeak(measured.flops_per_s, "peak measured with large matrix products")
        reason = f"the fastest rounds of large matrix products differed by {percent(measured.spread)}"
        return DevicePeak(None, f"peak not known: {reason}")
    part = measured.flops_per_s / expected
    if PLAUSIBLE_PARTS[0] <= part <= PLAUSIBLE_PARTS[1]:
        origin = f"peak measured with large matrix products, {percent(part)} of the data sheet's {_tera(expected)}"
        return DevicePeak(measured.flops_per_s, origin)
    return data_sheet_peak(measured, f"the measured {_tera(measured.flops_per_s)} are implausible")


def data_sheet_peak(measured: PeakMeasured, reason: str) -> DevicePeak:
    """The peak of the data sheet, if there is one, for the reason that the measured one cannot be used."""
    expected = find_data_sheet_peak(measured.device, measured.precision)
    if expected is None:
        return DevicePeak(None, f"peak not known: {reason}")
    sheet = f"peak from the data sheet of {measured.device}, dense {measured.precision}"
    return DevicePeak(expected, f"{sheet}, because {reason}")


def _with_device(measured: PeakMeasured, history: RunHistory) -> PeakMeasured:
    """In older logs only the start of the run names the device."""
    if measured.device:
        return measured
    return replace(measured, device=history.started.device, precision=history.started.precision)


def mean_step_flops(history: RunHistory, steps: Sequence[StepDone]) -> float:
    """FLOPs of a mean step, over all workers."""
    started = history.started
    source_tokens, target_tokens = mean_of(steps, "source_tokens"), mean_of(steps, "target_tokens")
    products = source_tokens * started.flops_per_source_token + target_tokens * started.flops_per_target_token
    return products + (source_tokens + target_tokens) * started.attention_flops_per_token


def _sum_over_workers(peaks: Sequence[DevicePeak], workers: int) -> float | None:
    """Workers whose peak is not known count as the mean of the others; None if none is known."""
    known = [peak.flops_per_s for peak in peaks if peak.flops_per_s is not None]
    return sum(known) / len(known) * workers if known else None


def _tera(flops_per_s: float) -> str:
    return f"{flops_per_s / 1e12:.3g} TFLOP/s"
