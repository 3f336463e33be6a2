"""The log of a very long run: the size of its folder, and the time and memory of its report.

Eight workers of one machine record a million steps each, with evaluations, checkpoints, skipped steps, sensor readings
and a resume, through the same writers as in training. Two processes take several minutes for that.
"""

import itertools
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.insight.synthetic_runs import checkpoint, evaluation, host_sample, synthetic_run

from benchmarks.reporting import Figure
from benchmarks.timing import GilMonitor
from dragoman.event_log import EventLog
from dragoman.events import Event, RunEnded, RunStarted, StepDone, StepSkipped
from dragoman.run_folder import RunFolder

WORKERS = 8
STEPS = 1_000_000
EVALUATE_EVERY, SAVE_EVERY, SKIP_EVERY = 5000, 1000, 100_000
KILLED_AT, RESUMED_AT = 599_700, 599_000
STEP_S = 0.033
READ_EVERY = 300
"""Steps between sensor readings, which are ten seconds apart."""
WITH_PEAK_MEMORY = """
import atexit, runpy, sys
status = open("/proc/self/status")
atexit.register(lambda: print(next(line for line in status if line.startswith("VmHWM")), file=sys.stderr))
runpy.run_module("dragoman", run_name="__main__", alter_sys=True)
"""
"""Runs a command, and writes its peak memory in kilobytes. That of `getrusage` is at least the one of this process."""
SAMPLE = 20_000
"""Events whose generation is measured, and steps that make a log grow enough to be thinned."""


def measure_long_log(_data: Path) -> Iterator[Figure]:
    """A run of a million steps and eight workers."""
    name = f"{STEPS:,} steps, {WORKERS} workers"
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        run.path.mkdir()
        run.config.write_text("{}")
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            jobs = [(run.path, worker) for worker in range(WORKERS)]
            record_s = max(pool.starmap(record_worker, jobs, chunksize=1)[1:])  # The first one wrote curves, too.
        logs_mb = sum(log.stat().st_size for log in run.event_logs()) / 1e6
        curves_mb = sum(file.stat().st_size for file in run.tensorboard.iterdir()) / 1e6
        size = f"{logs_mb + curves_mb:.0f} MB (events {logs_mb:.0f}, TensorBoard {curves_mb:.0f})"
        yield Figure(f"{name}: log of the folder", size, "under 200 MB", logs_mb + curves_mb)
        report_s, peak_mb = _report(run.path)
        yield Figure(f"{name}: report made", f"{report_s:.1f} s", "under 10 s", report_s)
        yield Figure(f"{name}: peak memory of the report", f"{peak_mb:.0f} MB", "under 500 MB", peak_mb)
        delay_s = _measure_delay_s(run)
    cost = f"{1e6 * record_s:.0f} us, {record_s / STEP_S:.2%} of {STEP_S} s"
    yield Figure(f"{name}: CPU time to record a step, with thinning", cost, "under 0.5 %", record_s)
    yield Figure(f"{name}: longest delay of another thread by thinning", f"{1e3 * delay_s:.0f} ms", "", delay_s)


def record_worker(path: Path, worker: int) -> float:
    """Write the log of one worker, and the first one also the curves. Returns the CPU time to record a step."""
    run = RunFolder(path)
    log = EventLog(run.events_of(worker))
    assert log.lock()
    sinks = [log]
    if worker == 0:
        from dragoman.telemetry.sinks import TensorBoardSink  # Imports torch.

        sinks.append(TensorBoardSink(run.tensorboard, first_step=0))
    started_s = time.process_time()
    for _ in itertools.islice(_events_of(worker), SAMPLE):
        pass
    generate_s = (time.process_time() - started_s) / SAMPLE
    started_s = time.process_time()
    for event in _events_of(worker):
        for sink in sinks:
            sink.record(event)
    for sink in sinks:
        sink.close()
    return (time.process_time() - started_s) / STEPS - generate_s


def _events_of(worker: int) -> Iterator[Event]:
    """The events that one worker records, in order."""
    template = synthetic_run(1, total_steps=STEPS, world=WORKERS, hosts=["a"], evaluate_every=EVALUATE_EVERY)
    started = next(event for event in template if isinstance(event, RunStarted))
    done = vars(next(event for event in template if isinstance(event, StepDone)))
    random = Random(worker)
    now_s = started.at_s
    numbers = itertools.chain(range(1, KILLED_AT + 1), range(RESUMED_AT + 1, STEPS + 1))
    last = 0
    for step in numbers:
        if step != last + 1 or step == 1:
            now_s += 60.0
            session = {"resumed_step": step - 1, "session_at_s": now_s - worker}
            yield replace(started, at_s=now_s, worker=worker, **session)
        last = step
        now_s += STEP_S
        noise = random.random()
        ready_s = [0.03 + noise / 100 * rank for rank in range(WORKERS)]
        times = {"step_s": STEP_S + noise / 500, "compute_s": 0.028 + noise / 700, "communication_s": noise / 600}
        values = {"at_s": now_s, "worker": worker, "step": step, "nll": 2 + 30 / step**0.5 + noise, "ready_s": ready_s}
        yield StepDone(**(done | times | values | {"data_s": noise / 9000, "gradient_norm": 1 + noise}))
        if step % EVALUATE_EVERY == 0:
            yield replace(evaluation(step, 2 + 30 / step**0.5, 30.0, now_s + 0.001), worker=worker)
        if step % SKIP_EVERY == 0:
            at_s = now_s + 0.002
            yield StepSkipped(at_s=at_s, worker=worker, step=step, loss=1.0, gradient_norm=1.0, consecutive=1)
        if worker == 0 and step % SAVE_EVERY == 0:
            yield checkpoint(step, 0.03, now_s + 0.003)
        if worker == 0 and step % READ_EVERY == 0:
            reading = host_sample("a", 0)
            yield replace(reading, at_s=now_s + 0.004, gpus=reading.gpus * WORKERS)
    yield RunEnded(at_s=now_s, worker=worker, step=STEPS, reason="finished", elapsed_s=STEPS * STEP_S)


def _report(run: Path) -> tuple[float, float]:
    """Time of `dragoman report`, and its peak memory in megabytes."""
    started_at = time.perf_counter()
    command = [sys.executable, "-c", WITH_PEAK_MEMORY, "report", str(run)]
    process = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - started_at, int(process.stderr.split()[-2]) * 1024 / 1e6


def _measure_delay_s(run: RunFolder) -> float:
    """The longest time for which another thread has to wait while the log of a long run is recorded and thinned."""
    log = EventLog(run.events_of(1))
    step = next(event for event in _events_of(1) if isinstance(event, StepDone))
    with GilMonitor() as monitor:
        for number in range(SAMPLE):
            log.record(replace(step, step=STEPS + number, at_s=step.at_s + number))
        log.close()
    return monitor.longest_s
