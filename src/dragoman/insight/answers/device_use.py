"""Use of the devices: busy time, model FLOP utilisation, and the longest wait."""

from statistics import fmean

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.diagnoses import NOTICEABLE_WAIT
from dragoman.insight.flop_utilisation import describe_flop_utilisation
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
    if (utilisation := describe_flop_utilisation(history, steps)) is not None:
        text += f"; {utilisation.text}"
        evidence += utilisation.evidence
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
