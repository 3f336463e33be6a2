"""Use of the devices: busy time, model FLOP utilisation, and what bounds the step."""

from statistics import fmean

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.flop_utilisation import describe_flop_utilisation
from dragoman.insight.gpu_readings import training_gpus
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_bound import bound_of
from dragoman.insight.step_breakdown import NOT_MEASURED, NOTICEABLE_WAIT, mean_of, mean_part_s, measured_steps
from dragoman.number_format import percent

WAITS = ("communication", "straggler wait", "data wait", "host-bound", "compile")


def answer_device_use(history: RunHistory) -> Answer:
    question = "Were the GPUs fully used?"
    steps, bound = measured_steps(history), bound_of(history)
    if not steps or bound is None:
        return unknown("devices", question, NOT_MEASURED)
    step_s, device = mean_of(steps, "step_s"), history.started.device
    text = "No GPU: CPU" if device == "CPU" else "GPU"
    text += f" busy {percent(mean_part_s(steps, 'compute') / step_s)} of the time"
    evidence = [f"{device}, {history.started.precision}; busy time is compute time per step, without any waiting"]
    gpus = [gpu for readings in training_gpus(history).values() for gpu in readings]
    if gpus:
        text += f" ({percent(fmean(gpu['use'] for gpu in gpus))} by the driver)"
        evidence.append("the driver also counts the optimizer update and waiting in communication kernels as busy")
    if memory_use := [gpu["memory_use"] for gpu in gpus if "memory_use" in gpu]:
        evidence.append(f"its memory was at work {percent(fmean(memory_use))} of the time, by the driver")
    if (utilisation := describe_flop_utilisation(history, steps)) is not None:
        text += f"; {utilisation.text}"
        evidence += utilisation.evidence
    waits_s = {part: mean_part_s(steps, part) for part in WAITS}
    longest = max(waits_s, key=lambda part: waits_s[part])
    if waits_s[longest] > NOTICEABLE_WAIT * step_s:
        text += f"; {longest} {percent(waits_s[longest] / step_s)}"
    evidence.append(f"the step is bound by {bound.kind}: {bound.reason}")
    return Answer("devices", question, f"{text}; bound by {bound.kind}.", evidence)
