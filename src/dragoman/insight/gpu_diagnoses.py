"""Diagnoses of GPUs: too little work for them, other processes on them, lowered clocks. A healthy run has none."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from dragoman.events import StepDone
from dragoman.insight.answer import Answer, Confidence
from dragoman.insight.flop_utilisation import describe_flop_utilisation, measured_part_of_data_sheet
from dragoman.insight.gpu_readings import GpuReading, training_gpus
from dragoman.insight.roofline import estimate_roofline
from dragoman.insight.run_history import RunHistory
from dragoman.insight.step_bound import launch_wait_s
from dragoman.insight.step_breakdown import NOTICEABLE_WAIT, mean_of, mean_part_s, measured_steps
from dragoman.number_format import count, percent, size

LAUNCH_LIMIT = 0.60
"""Part of step time in which a GPU may wait for Python. The recipe `small` on an H200 reaches half."""
MIN_BUSY = 0.5
"""Part of step time in which a GPU must work, if its batch is to be too small."""
SLOW_PEAK = 0.55
"""Part of the data sheet's peak: large products on an idle GPU at full clocks reach 75 % or more."""
FULL_CLOCK = 0.85
"""Part of the highest clock from which clocks explain no slowness."""
LOWERED_CLOCK = 0.70
"""Part of the highest clock that a busy GPU should have. Under a power cap, 80 % is common."""
LOADED = 0.3
"""Part of the time in which a GPU must work, if its clocks are to mean anything."""
THROTTLE_LIMIT = 0.20
"""Part of the time in which heat may lower a GPU's clocks."""
COMPUTE_JUMP = 1.5
"""Factor between the fastest and the slowest part of a run, computing the same."""
ALWAYS_BUSY = 0.8
"""Part of step time in which a GPU must work, if the times of its steps are to be compared."""
JUMP_WINDOWS, MIN_WINDOW_STEPS = 8, 10


def diagnose_gpus(history: RunHistory) -> Iterator[Answer]:
    """All diagnoses of the GPUs of a run."""
    if history.started.device != "CPU":
        # A GPU that waits for Python has too little work as well, but that it waits is the plainer reason.
        yield from _launches(history) or _small_batch(history)
        yield from _shared_gpu(history)
        yield from _lowered_clocks(history)


def _launches(history: RunHistory) -> list[Answer]:
    steps = measured_steps(history)
    late_s, step_s = launch_wait_s(history, steps), mean_of(steps, "step_s")
    # A process that is short of CPU time is late with everything. Data wait is what the user can do something about.
    if late_s <= LAUNCH_LIMIT * step_s or mean_part_s(steps, "data wait") > NOTICEABLE_WAIT * step_s:
        return []
    return [
        Answer(
            "launches",
            "Does the GPU wait for Python?",
            f"Yes: {percent(late_s / step_s)} of step time. The model and its batches are too small to keep this GPU "
            "busy.",
            [
                f"{1000 * late_s:.1f} ms of a {1000 * step_s:.1f} ms step, of which "
                f"{1000 * mean_part_s(steps, 'host-bound'):.1f} ms between steps and the rest in the optimizer update",
                f"computing takes {1000 * mean_part_s(steps, 'compute'):.1f} ms, for "
                f"{count(mean_of(steps, 'target_tokens'))} target tokens",
            ],
            remedy="Raise batch.tokens, or train a larger model. A smaller or shared GPU, or a CPU, would be about as "
            "fast.",
            is_warning=True,
        )
    ]


def _small_batch(history: RunHistory) -> Iterator[Answer]:
    steps = measured_steps(history)
    busy_s = mean_part_s(steps, "compute") + mean_part_s(steps, "optimizer update")
    roofline = estimate_roofline(history, steps) if busy_s > MIN_BUSY * mean_of(steps, "step_s") else None
    if roofline is None or roofline.weights_s <= roofline.arithmetic_s:
        return
    tokens, micro_batches = mean_of(steps, "target_tokens"), mean_of(steps, "micro_batches")
    filled = tokens / micro_batches * roofline.weights_s / roofline.arithmetic_s
    utilisation = describe_flop_utilisation(history, steps)
    setting = "batch.tokens" if micro_batches < 1.5 else "training.micro_batch_tokens"
    yield Answer(
        "small-batch",
        "Is the batch large enough to fill the GPU?",
        f"No: with {count(tokens / micro_batches)} target tokens at a time, reading and writing weights and optimizer "
        "state takes longer than the arithmetic.",
        [
            f"estimated from data sheet and counts: {1000 * roofline.weights_s:.1f} ms for the traffic of "
            f"{count(history.started.parameters)} weights, {1000 * roofline.arithmetic_s:.1f} ms for the arithmetic",
            f"a step takes {1000 * mean_of(steps, 'step_s'):.1f} ms" + (f"; {utilisation.text}" if utilisation else ""),
        ],
        confidence="likely",
        remedy=f"Raise {setting} to {count(_round_up(4 * filled))} or more: a step would take little longer.",
        is_warning=True,
    )


def _round_up(tokens: float) -> int:
    return 1000 * (int(tokens) // 1000 + 1)


def _shared_gpu(history: RunHistory) -> Iterator[Answer]:
    for host, gpus in training_gpus(history).items():
        measured = [gpu["other_use"] for gpu in gpus if gpu.get("other_use") is not None]
        others = max(gpu.get("other_processes", 0) for gpu in gpus)
        is_visible = any(gpu.get("own_processes") for gpu in gpus)
        # Workers of this run that share a GPU slow each other down.
        workers = sum(worker.endswith(f" on {host}") for worker in history.workers)
        signs = _signs_of_slowness(history, gpus) if workers <= len({gpu["index"] for gpu in gpus}) else []
        confidence: Confidence = "measured"
        if is_visible and measured:
            if fmean(measured) < NOTICEABLE_WAIT:
                continue
            text = f"Yes: another process computes {percent(fmean(measured))} of the time on {host}."
        elif signs and (others or not is_visible):
            text, confidence = f"Probably: the GPU on {host} is slower than it should be, at full clocks.", "likely"
        else:
            continue
        memory_bytes = max(gpu.get("other_memory_bytes", 0) for gpu in gpus)
        listed = f"the driver lists {others} other processes, with {size(memory_bytes)} of GPU memory"
        hidden = "the driver does not show this process its own number, so others may be hidden as well"
        yield Answer(
            "shared-gpu",
            "Does another process use the GPU?",
            text,
            [*([listed] if others else []), *([] if is_visible else [hidden]), *signs],
            confidence=confidence,
            remedy="Look for it with nvidia-smi on that machine and stop it, or train on another GPU with "
            "CUDA_VISIBLE_DEVICES.",
            is_warning=True,
        )


def _signs_of_slowness(history: RunHistory, gpus: Sequence[GpuReading]) -> list[str]:
    """Signs that a GPU with full clocks does less for this run than it could."""
    clock = _clock_part(gpus)
    if clock is None or clock < FULL_CLOCK:
        return []
    signs = []
    if (part := measured_part_of_data_sheet(history)) is not None and part < SLOW_PEAK:
        signs.append(f"large matrix products reached {percent(part)} of the data sheet's peak, at full clocks")
    if (jump := compute_jump(measured_steps(history))) >= COMPUTE_JUMP:
        signs.append(f"computing the same took {jump:.1f} times as long in some parts of the run as in others")
    return signs


def compute_jump(steps: Sequence[StepDone]) -> float:
    """Compute time of the slowest part of a run relative to the fastest; 1 if there are few steps or the GPU waits.

    The times of a GPU that waits, for data or for Python, depend on the CPU.
    """
    window, busy_s = len(steps) // JUMP_WINDOWS, mean_part_s(steps, "compute") + mean_part_s(steps, "optimizer update")
    if window < MIN_WINDOW_STEPS or busy_s < ALWAYS_BUSY * mean_of(steps, "step_s"):
        return 1.0
    times_s = [step.compute_s / max(step.share, 1e-9) for step in steps]
    medians = [median(times_s[n * window : (n + 1) * window]) for n in range(JUMP_WINDOWS)]
    return max(medians) / max(min(medians), 1e-9)


def _lowered_clocks(history: RunHistory) -> Iterator[Answer]:
    for host, gpus in training_gpus(history).items():
        hot = [gpu for gpu in gpus if "heat" in gpu["throttled"]]
        clock = _clock_part(gpus)
        if len(hot) > THROTTLE_LIMIT * len(gpus):
            temperature_c = fmean(gpu["temperature_c"] for gpu in hot)
            text = f"Yes: on {host}, because of heat, {percent(len(hot) / len(gpus))} of the time."
            evidence = [f"{temperature_c:.0f} °C and {fmean(gpu['clock_mhz'] for gpu in hot):,.0f} MHz while throttled"]
            remedy = "Improve the cooling, or lower the GPU's power limit."
        elif clock is not None and clock < LOWERED_CLOCK:
            reasons = sorted({reason for gpu in gpus for reason in gpu["throttled"]})
            text = f"Yes: on {host}, clocks are at {percent(clock)} of the highest while it computes."
            mean_mhz = fmean(gpu["clock_mhz"] for gpu in _loaded(gpus))
            evidence = [
                f"{mean_mhz:,.0f} of {gpus[-1]['max_clock_mhz']:,.0f} MHz",
                f"reasons by the driver: {', '.join(reasons) or 'none, so that the clocks are probably locked'}",
            ]
            remedy = (
                "Reset locked clocks with `nvidia-smi -rgc` and application clocks with `nvidia-smi -rac`, raise the "
                "power limit, or ask who administers the machine."
            )
        else:
            continue
        yield Answer("throttled", "Are GPUs throttled?", text, evidence, remedy=remedy, is_warning=True)


def _loaded(gpus: Sequence[GpuReading]) -> list[GpuReading]:
    """Readings of GPUs that work and tell their highest clock."""
    return [gpu for gpu in gpus if gpu.get("max_clock_mhz") and gpu["use"] >= LOADED]


def _clock_part(gpus: Sequence[GpuReading]) -> float | None:
    """Mean clock of busy GPUs relative to the highest; None if it is not known."""
    parts = [gpu["clock_mhz"] / gpu["max_clock_mhz"] for gpu in _loaded(gpus)]
    return fmean(parts) if parts else None
