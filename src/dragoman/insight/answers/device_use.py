"""Use of the devices: busy time, model FLOP utilisation, and the longest wait."""

from statistics import fmean

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.diagnoses import NOTICEABLE_WAIT
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_breakdown import NOT_MEASURED, mean_of, mean_part_s, measured_steps
from dragoman.number_format import percent

WAITS = ("communication", "straggler wait", "data wait", "host-bound", "compile")


def answer_device_use(history: RunHistory) -> Answer:
    question = "Were the GPUs fully used?"
    steps = measured_steps(history)
    if not steps:
        return unknown("devices", question, NOT_MEASURED)
    step_s, device = mean_of(steps, "step_s"), history.started.device
    text = "No GPU: CPU" if device == "CPU" else "GPU"
    text += f" busy {percent(mean_part_s(steps, 'compute') / step_s)} of the time"
    evidence = [f"{device}, {history.started.precision}; busy time is compute time per step, without any waiting"]
    flops_per_s, peak = _step_flops(history) / step_s, _peak_flops_per_s(history)
    if flops_per_s and peak:
        text += f"; MFU {percent(flops_per_s / peak)} ({flops_per_s / 1e12:.3g} of {peak / 1e12:.3g} TFLOP/s)"
        evidence.append("MFU: FLOPs counted without attention scores; peak measured with large matrix products")
    driver_use = [gpu["use"] for readings in history.host_readings.values() for look in readings for gpu in look.gpus]
    if driver_use:
        evidence.append(
            f"the driver reports {percent(fmean(driver_use))} GPU utilisation, which includes waiting in "
            "communication kernels"
        )
    waits_s = {part: mean_part_s(steps, part) for part in WAITS}
    longest = max(waits_s, key=lambda part: waits_s[part])
    if waits_s[longest] > NOTICEABLE_WAIT * step_s:
        text += f"; {longest} {percent(waits_s[longest] / step_s)}"
    return Answer("devices", question, f"{text}.", evidence)


def _step_flops(history: RunHistory) -> float:
    """FLOPs of a mean step, over all workers."""
    steps, started = measured_steps(history), history.started
    source_flops = mean_of(steps, "source_tokens") * started.flops_per_source_token
    return source_flops + mean_of(steps, "target_tokens") * started.flops_per_target_token


def _peak_flops_per_s(history: RunHistory) -> float:
    """Peak of all workers together. Workers whose events have not arrived here count as the mean of the others."""
    peaks = history.peak_flops_per_s.values()
    return sum(peaks) * history.started.world_size / max(1, len(peaks))
