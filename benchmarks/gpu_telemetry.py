"""Cost of telemetry on a GPU, and its MFU against torch's profiler: sections of `benchmarks.insight`.

Telemetry is switched on and off in turns of a hundred steps of one run: the time line of the GPU, and recording in the
log, the terminal and TensorBoard. So both have the same clocks and the same neighbours. The sensors are measured alone.

MFU is what the report says of a run. Beside it: the same FLOPs, counted by torch's own counter on pairs of the same
lengths, divided by the time in which kernels ran according to torch's profiler.
"""

import contextlib
import io
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.model.counted_flops import count_by_torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.command_line import NO_EVALUATION
from benchmarks.corpora import prepare_multi30k
from benchmarks.forked_commands import call_forked
from benchmarks.reporting import Figure
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.events import Event, StepDone
from dragoman.insight.flop_utilisation import describe_flop_utilisation
from dragoman.insight.run_history import read_history
from dragoman.launch import local_launcher
from dragoman.model.architecture import Architecture
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sensors import Sensors
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.trainer import Trainer
from dragoman.training.worker import TrainingJob

RECIPES = ("modern", "small")
WARM_UP, TURN_STEPS, TURNS = 100, 100, 12
PROFILED_STEPS = 20
PROFILE_AT = 400
"""Steps before the profile. They are the ones to compare with: a profile slows down what follows."""
COUNTED_PAIRS = 60
SENSORS_S = 20.0
"""Time for which the cost of the sensors is measured."""
BeforeStep = Callable[[Trainer, int], None]


def measure_gpu_telemetry(corpora: Path) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_multi30k(Path(folder) / "data", "small", corpora)
        for recipe in RECIPES:
            times_s = call_forked(_time_turns, data.path, Path(folder) / recipe, recipe)
            on_s, off_s = (statistics.median(times_s[state]) / TURN_STEPS for state in (True, False))
            cost = on_s / off_s - 1
            text = f"{cost:+.2%} ({1000 * on_s:.3f} and {1000 * off_s:.3f} ms a step, {TURNS // 2} turns each)"
            yield Figure(f"{recipe}: steps with telemetry against steps without", text, "under 0.5 %", cost)
        sensors = call_forked(measure_sensors)
        yield Figure("sensors: CPU time, of one core", f"{sensors:.3%}", "", sensors)


def measure_gpu_mfu(corpora: Path) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        data = prepare_multi30k(Path(folder) / "data", "transformer-base", corpora)
        for recipe in ("transformer-base", "modern"):
            run = Path(folder) / recipe
            found = call_forked(_profile, data.path, run, recipe)
            history = read_history(run)
            reported = describe_flop_utilisation(history, history.steps[WARM_UP:PROFILE_AT])
            assert reported is not None
            percentage, peak = re.findall(r"MFU (\d+) %.* of ([\d.]+) TFLOP/s", reported.text)[0]
            expected = 100 * found.flops / found.kernels_s / (float(peak) * 1e12)
            difference = float(percentage) - expected
            text = (
                f"{difference:+.1f} points (report: {reported.text}; counted FLOPs over kernel time: {expected:.1f} %)"
            )
            yield Figure(f"{recipe}: MFU against torch's counter and profiler", text, "within 3 points", difference)
            kernels_ms, step_ms = 1000 * found.kernels_s, 1000 * found.step_s
            text = f"{found.kernels:.0f} kernels, which ran for {kernels_ms:.2f} of {step_ms:.2f} ms"
            yield Figure(f"{recipe}: a step, by torch's profiler", text, "", found.kernels_s / found.step_s)


def _train(data: Path, run: Path, recipe: str, steps: int, before_step: BeforeStep) -> None:
    """Train in this process as a user does, and call a function before each step with the number of steps done."""
    advance, done = Trainer._advance, 0

    def step(trainer: Trainer) -> str | None:
        nonlocal done
        before_step(trainer, done)
        done += 1
        return advance(trainer)

    Trainer._advance = step  # type: ignore[method-assign]
    job = TrainingJob(resolve(recipe, [*NO_EVALUATION, f"training.steps={steps}"]).settings, data, run)
    with contextlib.redirect_stdout(io.StringIO()):
        local_launcher.train(job, workers=1, make_scorer=make_scorer)


def _time_turns(data: Path, run: Path, recipe: str) -> dict[bool, list[float]]:
    """Seconds of each turn, with telemetry and without."""
    times_s: dict[bool, list[float]] = {True: [], False: []}
    started_at, is_on, timeline, record = 0.0, True, None, EventRecorder.record

    def switch(trainer: Trainer, done: int) -> None:
        nonlocal started_at, is_on, timeline
        if done < WARM_UP or (done - WARM_UP) % TURN_STEPS:
            return
        torch.cuda.synchronize()
        now = time.perf_counter()
        if done > WARM_UP:
            times_s[is_on].append(now - started_at)
            is_on = not is_on
        timeline = timeline or trainer._timer._timeline
        trainer._timer._timeline = timeline if is_on else None
        EventRecorder.record = record if is_on else _ignore  # type: ignore[method-assign]
        started_at = time.perf_counter()

    _train(data, run, recipe, WARM_UP + TURNS * TURN_STEPS + 1, switch)
    return times_s


def _ignore(_recorder: EventRecorder, _event: Event) -> None:
    """Records nothing."""


def measure_sensors() -> float:
    """CPU time of the sensors, as a part of one core."""
    sensors = Sensors("here", lambda _: None)
    started_cpu_s, started_at = time.process_time(), time.perf_counter()
    time.sleep(SENSORS_S)
    sensors.close()
    return (time.process_time() - started_cpu_s) / (time.perf_counter() - started_at)


@dataclass(frozen=True)
class ProfiledStep:
    """Means of some steps, without their profile's own time."""

    step_s: float
    kernels: float
    kernels_s: float
    """Time in which at least one kernel ran."""
    flops: float
    """By torch's counter."""


def _profile(data: Path, run: Path, recipe: str) -> ProfiledStep:
    profiler: Any = None
    spans: list[tuple[float, float]] = []

    def watch(_trainer: Trainer, done: int) -> None:
        nonlocal profiler, spans
        if done == PROFILE_AT:
            torch.cuda.synchronize()
            profiler = profile(activities=[ProfilerActivity.CUDA])
            profiler.start()
        elif done == PROFILE_AT + PROFILED_STEPS:
            torch.cuda.synchronize()
            profiler.stop()
            spans = _kernel_spans(profiler)

    _train(data, run, recipe, PROFILE_AT + PROFILED_STEPS + 1, watch)
    done = [event for event in RunFolder(run).events() if isinstance(event, StepDone)]
    steps = done[PROFILE_AT : PROFILE_AT + PROFILED_STEPS]
    tokens = statistics.fmean(step.source_tokens + step.target_tokens for step in steps)
    return ProfiledStep(
        statistics.median(step.step_s for step in done[WARM_UP:PROFILE_AT]),
        len(spans) / PROFILED_STEPS,
        _union_s(spans) / PROFILED_STEPS,
        tokens * _flops_per_token(data, recipe),
    )


def _kernel_spans(profiler: Any) -> list[tuple[float, float]]:
    """Start and end of each kernel, in microseconds."""
    on_device = (event for event in profiler.events() if event.device_type.name == "CUDA")
    return sorted((event.time_range.start, event.time_range.end) for event in on_device)


def _union_s(spans: Sequence[tuple[float, float]]) -> float:
    """Time in which at least one kernel ran."""
    total_us, until = 0.0, float("-inf")
    for start, end in spans:
        total_us += max(0.0, end - max(start, until))
        until = max(until, end)
    return total_us / 1e6


def _flops_per_token(data: Path, recipe: str) -> float:
    """Counted by torch over pairs of the corpus."""
    dataset = DataSet(data)
    settings = resolve(recipe, ["model.attention_dropout=0.1"]).settings
    architecture = Architecture(vocabulary=dataset.tokenizer.padded_vocab_size, **settings.model.model_dump())
    lengths = dataset.pairs("train").lengths()
    sample = [(int(source), int(target)) for source, target in lengths[:: len(lengths) // COUNTED_PAIRS]]
    return count_by_torch(architecture, sample) / sum(source + target for source, target in sample)
