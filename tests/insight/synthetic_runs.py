"""Synthetic runs: the events that a run of a certain kind would have recorded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
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
    settings = resolve(
        "transformer-base", [f"training.steps={total}", f"evaluation.every={evaluate_every}", *overrides]
    ).settings
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
