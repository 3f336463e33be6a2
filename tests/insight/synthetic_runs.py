"""Synthetic runs: the events that a run of a certain kind would have recorded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from dragoman import events
from dragoman.event_log import EventLog
from dragoman.events import Event, StepDone
from dragoman.insight.compared_run import Significance
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.kept_translations import KeptTranslations

MBIT = 1e6
REFERENCES = ("eins", "zwei", "drei")
PRICED = ("money.currency=EUR", "money.price_per_hour=[36]")


def power_law(step: int) -> float:
    """A healthy validation curve that still falls."""
    return 1.2 + 30 * step**-0.5


def synthetic_run(
    steps: int = 400,
    *,
    total_steps: int | None = None,
    world: int = 2,
    hosts: Sequence[str] = ("a", "b"),
    step: Callable[[StepDone], StepDone] = lambda done: done,
    valid_loss: Callable[[int], float] = power_law,
    train_loss: Callable[[int], float] | None = None,
    bleu: Callable[[int], float] = lambda step: 35 - 3000 / (step + 100),
    evaluate_every: int = 40,
    stall_s: float = 0.01,
    extra: Sequence[Event] = (),
    ended: str | None = "finished",
    overrides: Sequence[str] = (),
    start_at_s: float = 1.7e9,
) -> list[Event]:
    """Events of a run. By default two equal hosts compute for 0.84 s of each 1 s step."""
    random = Random(7)
    total = total_steps or steps
    own = [f"training.steps={total}", f"evaluation.every={evaluate_every}", "schedule.warmup_steps=10"]
    settings = resolve("transformer-base", [*own, *overrides]).settings
    recorded: list[Event] = [
        events.PeakMeasured(at_s=start_at_s - 1, flops_per_s=1e14),
        events.RunStarted(
            at_s=start_at_s, run="synthetic", version="1", torch_version="2", world_size=world,
            workers=[f"worker {n} on {hosts[n % len(hosts)]}" for n in range(world)], device="GPU", host=hosts[0],
            parameters=61_000_000, precision="bf16", data_hash="d", resumed_step=0, total_steps=total,
            flops_per_source_token=6 * 20_000_000, flops_per_target_token=6 * 41_000_000,
            settings=settings.model_dump(mode="json"),
        ),
        events.DataOpened(
            at_s=start_at_s, name="corpus", languages="en-de", pairs_before=2_000_000, bytes_before=600_000_000,
            pairs=1_900_000, text_bytes=560_000_000, source_tokens=50_000_000, target_tokens=52_000_000,
            valid_pairs=2000, vocabulary=32_768,
        ),
    ]  # fmt: skip
    now = start_at_s
    loss = train_loss or valid_loss
    for number in range(1, steps + 1):
        done = step(
            StepDone(
                step=number, epoch=0, batch=number, loss=loss(number) + 1,
                nll=loss(number) * random.uniform(0.97, 1.03), gradient_norm=1.0,
                learning_rate=0.001, source_tokens=24_000, target_tokens=25_000, pairs=900,
                step_s=1.0, data_s=0.001, compute_s=0.84, communication_s=0.054, straggler_s=0.005, optimizer_s=0.1,
                ready_s=[0.94 + random.uniform(-0.02, 0.02) for _ in range(world)] if world > 1 else [],
                sent_bytes=244_000_000 if world > 1 else 0, share=1 / world, micro_batches=1,
            )
        )  # fmt: skip
        now += done.step_s
        recorded.append(replace(done, at_s=now))
        if number % evaluate_every == 0 or number == total:
            now += 2.0
            recorded.append(evaluation(number, valid_loss(number), bleu(number), now))
            now += stall_s
            recorded.append(checkpoint(number, stall_s, now))
        recorded += [replace(event, at_s=now) for event in extra if getattr(event, "step", 0) == number]
    if ended is not None:
        recorded.append(events.RunEnded(at_s=now, step=steps, reason=ended, elapsed_s=now - start_at_s))
    return recorded


FINE_TUNED = ("schedule.policy=linear", "schedule.learning_rate=0.0002", "schedule.warmup_steps=20")
ORIGIN = {"model": "models/opus", "format": "MarianMT", "languages": "en-de", "weights": "0f"}


def fine_tuned_run(
    losses: Sequence[float], *, bleus: Sequence[float] = (), news: Sequence[float] = (), **changes: Any
) -> list[Event]:
    """A run that began with a model, with its validation losses at step 0, 40, 80 and so on.

    By default BLEU is the better, the lower the loss. `news` is the BLEU on another set. Each difference of half a BLEU
    point is significant.
    """
    scores = bleus or [40 - 10 * loss for loss in losses]

    def gain(score: float, before: float) -> dict[str, float]:
        return {"bleu": score - before, "low": score - before - 0.3, "high": score - before + 0.3}

    def completed(event: Event) -> Event:
        if isinstance(event, events.RunStarted):
            return replace(event, start=ORIGIN)
        if not isinstance(event, events.EvaluationDone):
            return event
        number = event.step // 40
        gains = {"valid": gain(scores[number], scores[0])}
        others = {"nll": 3.0, "bleu": news[number], "chrf": None} if news else {}
        gains |= {"news": gain(news[number], news[0])} if news else {}
        return replace(event, gains=gains if number else {}, sets={"news": others} if news else {})

    trained = {"overrides": FINE_TUNED, "train_loss": lambda step: 1 + 30 / (step + 20), **changes}
    recorded = synthetic_run(
        40 * (len(losses) - 1),
        valid_loss=lambda step: losses[step // 40],
        bleu=lambda step: scores[step // 40],
        **trained,
    )
    first = next(number for number, event in enumerate(recorded) if isinstance(event, StepDone))
    recorded.insert(first, evaluation(0, losses[0], scores[0], recorded[first - 1].at_s))
    return [completed(event) for event in recorded]


def evaluation(step: int, nll: float, bleu: float | None, at_s: float) -> events.EvaluationDone:
    return events.EvaluationDone(
        at_s=at_s, step=step, loss=nll + 1, nll=nll, perplexity=math.exp(nll), bleu=bleu, bleu_signature="s",
        chrf=bleu, chrf_signature="s", target_tokens=1000, evaluation_s=2.0,
        samples=[{"source": "a <b>", "reference": "r", "translation": f"t{step}"}],
    )  # fmt: skip


def checkpoint(step: int, stall_s: float, at_s: float) -> events.CheckpointSaved:
    files = {"weights.safetensors": 244_000_000, "optimizer.safetensors": 488_000_000, "state.json": 400}
    return events.CheckpointSaved(
        at_s=at_s, step=step, name=f"step-{step:08d}", size_bytes=sum(files.values()), files=files,
        stall_s=stall_s, write_s=1.5,
    )  # fmt: skip


def host_sample(host: str, step: int, **gpu: Any) -> events.HostSampled:
    """Ten seconds of a host with one GPU and a gigabit network interface."""
    reading = {
        "index": 0, "name": "GPU", "use": 1.0, "memory_used_bytes": 10**9, "memory_bytes": 8 * 10**9, "power_w": 250.0,
        "power_limit_w": 300.0, "temperature_c": 70.0, "clock_mhz": 1500.0, "throttled": ["power cap"],
    }  # fmt: skip
    interface = {"name": "eth0", "received_bytes": 10**8, "sent_bytes": 10**8, "nominal_bits_per_s": 1000 * MBIT}
    return events.HostSampled(
        at_s=1.7e9 + step, host=host, span_s=10.0, cpu_use=0.4, memory_used_bytes=10**9, memory_bytes=10**10,
        disk_read_bytes=0, disk_written_bytes=0, interfaces=[interface], gpus=[{**reading, **gpu}],
    )  # fmt: skip


@dataclass(frozen=True)
class GpuStep:
    """A recipe on an H200, and the parts of its step."""

    recipe: str
    parameters: int
    tokens: int
    """Of a batch, on each side."""
    compute_s: float
    optimizer_s: float
    host_s: float = 0.0
    data_s: float = 0.0001
    evaluation_s: float = 1.0
    stall_s: float = 0.02

    @property
    def step_s(self) -> float:
        return self.compute_s + self.optimizer_s + self.host_s + self.data_s


H200_STEPS = {
    "tiny": GpuStep("tiny", 2_300_000, 2_000, 0.0013, 0.0014, 0.0021),
    "small": GpuStep("small", 9_500_000, 4_096, 0.0041, 0.0019, 0.0020),
    "transformer-base": GpuStep("transformer-base", 61_000_000, 25_600, 0.0242, 0.0025, 0.0004),
    "modern": GpuStep("modern", 61_000_000, 25_600, 0.0270, 0.0050, 0.0002),
    "transformer-big": GpuStep("transformer-big", 210_000_000, 25_000, 0.0750, 0.0040, 0.0002),
    "transformer-big, small batch": GpuStep("transformer-big", 210_000_000, 1_000, 0.0095, 0.0030, 0.0005),
    "transformer-base, small batch": GpuStep("transformer-base", 61_000_000, 1_000, 0.0042, 0.0019, 0.0020),
}
"""Measured steps of single workers, or estimates from them."""


def gpu_run(
    gpu_step: GpuStep,
    steps: int = 600,
    *,
    change: Callable[[StepDone], StepDone] = lambda done: done,
    readings: Mapping[str, Any] | None = None,
    peak: float = 780e12,
    compile_s: float = 20.0,
    evaluate_every: int = 200,
    overrides: Sequence[str] = (),
) -> list[Event]:
    """A run of one worker on an H200, whose first steps compile; sensor readings every ten seconds."""
    settings = resolve(gpu_step.recipe, [f"training.steps={steps}", *overrides]).settings
    now, random = 1.7e9, Random(3)
    flops = 6 * gpu_step.parameters
    recorded: list[Event] = [
        events.PeakMeasured(at_s=now - 1, flops_per_s=peak, device="NVIDIA H200", precision="bf16", spread=0.01),
        events.RunStarted(
            at_s=now, run="gpu", version="1", torch_version="2", world_size=1, workers=["worker 0 on a"],
            device="NVIDIA H200", host="a", parameters=gpu_step.parameters, precision="bf16", data_hash="d",
            resumed_step=0, session_at_s=now, total_steps=steps, flops_per_source_token=flops // 3,
            flops_per_target_token=flops - flops // 3, settings=settings.model_dump(mode="json"),
        ),
    ]  # fmt: skip
    for number in range(1, steps + 1):
        compiling_s = compile_s / 2 if number <= 2 else 0.0
        jitter = random.uniform(0.97, 1.03)
        done = change(
            StepDone(
                step=number, epoch=0, batch=number, loss=power_law(number) + 1, nll=power_law(number),
                gradient_norm=1.0, learning_rate=0.001, source_tokens=gpu_step.tokens - 200,
                target_tokens=gpu_step.tokens, pairs=900, step_s=gpu_step.step_s * jitter + compiling_s,
                data_s=gpu_step.data_s * jitter, compute_s=gpu_step.compute_s * jitter,
                optimizer_s=gpu_step.optimizer_s * jitter, host_s=gpu_step.host_s * jitter, compile_s=compiling_s,
                micro_batches=1,
            )
        )  # fmt: skip
        now += done.step_s
        recorded.append(replace(done, at_s=now))
        if number % evaluate_every == 0 or number == steps:
            now += gpu_step.evaluation_s
            done_s = gpu_step.evaluation_s
            recorded.append(replace(evaluation(number, power_law(number), 30.0, now), evaluation_s=done_s))
            now += gpu_step.stall_s
            recorded.append(checkpoint(number, gpu_step.stall_s, now))
    for reading_s in range(10, int(now - 1.7e9) + 10, 10):
        sample = host_sample("a", reading_s, **{**HEALTHY_H200, **(readings or {})})
        recorded.append(replace(sample, at_s=min(now, 1.7e9 + reading_s), memory_bytes=10**12))
    recorded.append(events.RunEnded(at_s=now, step=steps, reason="finished", elapsed_s=now - 1.7e9))
    return recorded


HEALTHY_H200 = {
    "name": "NVIDIA H200", "use": 0.95, "memory_use": 0.4, "memory_used_bytes": 20 * 10**9,
    "memory_bytes": 150 * 10**9, "power_w": 550.0, "power_limit_w": 700.0, "temperature_c": 55.0, "clock_mhz": 1900.0,
    "max_clock_mhz": 1980.0, "throttled": [], "own_processes": 1, "other_processes": 0, "other_memory_bytes": 0,
    "other_use": 0.0,
}  # fmt: skip


def write_run(folder: Path, recorded: Sequence[Event]) -> Path:
    """Write a run folder with these events of worker 0."""
    folder.mkdir()
    RunFolder(folder).config.write_text("{}")
    log = EventLog(RunFolder(folder).events_of(0))
    for event in recorded:
        log.record(event)
    log.close()
    return folder


def untested(first: KeptTranslations, second: KeptTranslations) -> Significance:
    """Significance test of runs that keep no translations: it is never called."""
    raise AssertionError


def p_value(value: float) -> Callable[[KeptTranslations, KeptTranslations], Significance]:
    """A significance test that always finds this for BLEU, and half of it for chrF."""
    return lambda first, second: Significance(value, value / 2)


def slower(done: StepDone) -> StepDone:
    return replace(done, step_s=1.5, communication_s=0.554)


def topic(comparison: dict[str, Any], name: str) -> str:
    """What a comparison says about a topic."""
    return next(each["text"] for each in comparison["topics"] if each["topic"] == name)
