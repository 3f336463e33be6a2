"""Accuracy and cost of insight: diagnoses of known runs, predicted step times, forecasts, telemetry, the report.

The runs are real, on test hosts (see `benchmarks.host_runs`; `benchmarks.diagnosis_cases` has those with known faults).
Needs root, Chromium and two idle cores; takes about 55 minutes.

    python -m benchmarks.insight [--only diagnoses unseen-diagnoses doctor busy-doctor slow-port eta step-timing
                                         telemetry report long-log]

On a machine with a GPU, which needs none of these, in calls of under ten minutes (see the modules `gpu_*`):

    python -m benchmarks.insight [--corpora ../shared/data] --only gpu-parts gpu-mfu gpu-telemetry
    python -m benchmarks.insight --only gpu-checkpoints gpu-eta gpu-forecasts
    python -m benchmarks.gpu_doctor [--recipes RECIPE...] [--fit]
    python -m benchmarks.insight --keep FOLDER [--cases NAME...] --only gpu-diagnoses
    python -m benchmarks.insight --keep FOLDER --only gpu-unseen-diagnoses

The last two keep the runs, so that changed rules can judge them again anywhere: `--rejudge FOLDER` instead of `--keep`.
"""

import contextlib
import io
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tests.distributed.thread_workers import ThreadCluster, ThreadWorkers
from tests.insight.synthetic_runs import host_sample, synthetic_run
from tests.system.hosts import Hosts

from benchmarks.busy_doctor import measure_busy_doctor
from benchmarks.command_line import NO_EVALUATION, dragoman_command, make_parser, run_dragoman
from benchmarks.corpora import CORPORA, prepare_demo
from benchmarks.diagnosis_cases import CASES, TUNED, UNSEEN, CaseRuns, train_locally
from benchmarks.diagnosis_scores import judge_runs
from benchmarks.gpu_checkpoints import measure_gpu_checkpoints
from benchmarks.gpu_diagnosis_cases import TUNED_CASES, UNSEEN_CASES, measure_gpu_diagnoses
from benchmarks.gpu_doctor import measure_gpu_doctor
from benchmarks.gpu_forecasts import judge_remaining_time, measure_gpu_eta, measure_gpu_forecasts
from benchmarks.gpu_step_parts import PART_FIELDS, measure_gpu_parts, sum_outside_s
from benchmarks.gpu_telemetry import measure_gpu_mfu, measure_gpu_telemetry, measure_sensors
from benchmarks.host_runs import EQUAL_SHARES, THREE_HOSTS, HostLauncher, slow_down_links
from benchmarks.long_log import measure_long_log
from benchmarks.reporting import Figure, print_figures
from benchmarks.timing import measure_s, median_s
from benchmarks.training_overhead import train_in_process
from dragoman.corpus.dataset import DataSet
from dragoman.distributed import event_sync
from dragoman.distributed.event_sync import EventSync
from dragoman.event_log import EventLog
from dragoman.events import Event, RunEnded, RunStarted
from dragoman.insight.report_writer import REPORT_FILE
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.training.trainer import NORM_EVERY

TWO_HOSTS = {"a": 0.9, "b": 0.9}
"""CPU quotas."""
LINK_RATES = ("50mbit", "100mbit", "1000mbit", None)
OTHER_METHODS = ("bf16", "local")
"""Exchange methods that the doctor predicts besides plain."""
ETA_STEPS = 400
ROUNDS = 20
REPORT_STEPS = 100_000


def main() -> None:
    sections = {
        "diagnoses": measure_diagnoses,
        "unseen-diagnoses": measure_unseen_diagnoses,
        "doctor": measure_doctor,
        "busy-doctor": measure_busy_doctor,
        "slow-port": measure_slow_port,
        "eta": measure_eta,
        "step-timing": measure_step_timing,
        "telemetry": measure_telemetry,
        "report": measure_report,
        "long-log": measure_long_log,
    }
    gpu_sections: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "gpu-parts": measure_gpu_parts,
        "gpu-mfu": measure_gpu_mfu,
        "gpu-doctor": measure_gpu_doctor,
        "gpu-telemetry": measure_gpu_telemetry,
        "gpu-checkpoints": measure_gpu_checkpoints,
        "gpu-eta": measure_gpu_eta,
        "gpu-forecasts": measure_gpu_forecasts,
    }
    case_sections = {"gpu-diagnoses": TUNED_CASES, "gpu-unseen-diagnoses": UNSEEN_CASES}
    parser = make_parser(__doc__, [*sections, *gpu_sections, *case_sections], sections)
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora of the GPU sections")
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these runs of gpu-diagnoses")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the events of the runs of gpu-diagnoses here")
    parser.add_argument("--rejudge", type=Path, metavar="FOLDER", help="judge runs kept earlier; needs no GPU")
    options = parser.parse_args()
    for name, cases in case_sections.items():
        gpu_sections[name] = partial(measure_gpu_diagnoses, name, cases, options)
    if names := [name for name in options.only if name in gpu_sections]:
        print_figures("insight", (figure for name in names for figure in gpu_sections[name](options.corpora)))
    if names := [name for name in options.only if name in sections]:
        with tempfile.TemporaryDirectory() as folder:
            data = prepare_demo(Path(folder) / "data", "tiny").path
            print_figures("insight", (figure for name in names for figure in sections[name](data)))


def measure_diagnoses(data: Path) -> Iterator[Figure]:
    """The runs on which the rules were written."""
    yield from _judge_diagnoses(CaseRuns(TUNED, data), "tuned set")


def measure_unseen_diagnoses(data: Path) -> Iterator[Figure]:
    """Runs with other seeds and settings, on which no rule was written."""
    yield from _judge_diagnoses(CaseRuns(UNSEEN, data), "unseen set")


def _judge_diagnoses(runs: CaseRuns, name: str) -> Iterator[Figure]:
    """Compare the warnings about each known run with the expected ones."""
    return judge_runs((case.judge(case.make_run(runs)) for case in CASES), name, "all")


def measure_doctor(data: Path) -> Iterator[Figure]:
    """Predicted and measured step times, over links, hosts and exchange methods."""
    errors, doctor_times_s = [], []
    for quotas in (TWO_HOSTS, THREE_HOSTS):
        names = list(quotas)
        for rate in LINK_RATES:
            with Hosts(names, rate=rate, quotas=quotas) as hosts:
                started_at = time.perf_counter()
                predictions = _predict_step_s(hosts, names, data)
                doctor_times_s.append(time.perf_counter() - started_at)
                launcher = HostLauncher(hosts, data)
                for method, predicted_s in predictions.items():
                    settings = (f"exchange.method={method}", "exchange.every=16", "exchange.wire_format=bf16")
                    run = launcher.run(",".join(names), *EQUAL_SHARES, *settings, "training.steps=40")
                    # The mean, because steps in which weights are exchanged may be longer than the others.
                    measured_s = statistics.fmean(step.step_s for step in run.measured_steps())
                    error = predicted_s / measured_s - 1
                    errors.append(abs(error))
                    name = f"doctor, {len(names)} hosts, {rate or 'unlimited'}, {method}: step time"
                    text = f"predicted {predicted_s:.3f} s, measured {measured_s:.3f} s ({error:+.0%})"
                    yield Figure(name, text, "15 %", error)
                    shutil.rmtree(run.folder().path)
    within = sum(error <= 0.15 for error in errors)
    yield Figure("doctor: predictions within 15 %", f"{within} of {len(errors)}", "all", within / len(errors))
    yield Figure("doctor: median error", f"{statistics.median(errors):.1%}", "7 %", statistics.median(errors))
    yield Figure("doctor: longest time", f"{max(doctor_times_s):.0f} s", "60 s", max(doctor_times_s))


def _predict_step_s(hosts: Hosts, names: Sequence[str], data: Path) -> dict[str, float]:
    """Predicted step time by exchange method, from one run of the doctor."""
    questions = [word for method in OTHER_METHODS for word in ("--what-if", f"exchange={method}")]
    found = _run_doctor(hosts, names, data, *questions)
    others = {method: found["what_if"][f"exchange={method}"] for method in OTHER_METHODS}
    estimates = {"plain": found["estimate"], **others}
    return {method: float(estimate["step_s"]) for method, estimate in estimates.items()}


def _run_doctor(hosts: Hosts, names: Sequence[str], data: Path, *options: str) -> Any:
    command = dragoman_command(
        "doctor", "--hosts", ",".join(names), "--ssh-config", hosts.ssh_config, "--json", "--data", data, *options,
        "tiny", "exchange.method=plain", *EQUAL_SHARES,
    )  # fmt: skip
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if not process.stdout:
        raise SystemExit(process.stderr)
    return json.loads(process.stdout)


def measure_slow_port(data: Path) -> Iterator[Figure]:
    """A port on which plain exchange makes steps fifteen times slower: does the doctor report it and the remedy?"""
    with Hosts(["a", "b"], quotas=TWO_HOSTS) as hosts:
        run = HostLauncher(hosts, data).run("a,b", *EQUAL_SHARES, "exchange.method=plain", "training.steps=30")
        rate = slow_down_links(hosts, run)
        started_at = time.perf_counter()
        estimate = _run_doctor(hosts, ("a", "b"), data)["estimate"]
        doctor_s = time.perf_counter() - started_at
    cause = next((sentence for sentence in estimate["limits"] if sentence.startswith("The link from")), "")
    has_remedy = any("exchange.method=local" in remedy for remedy in estimate["remedies"])
    is_reported = bool(cause) and not estimate["sensible"] and has_remedy
    text = f"{'yes' if is_reported else 'NO'}, after {doctor_s:.0f} s: {cause}"
    yield Figure(
        f"doctor on a slow port ({rate}): reports it and the remedy before the run",
        text,
        "yes, under 60 s",
        is_reported,
    )


def measure_eta(data: Path) -> Iterator[Figure]:
    """Estimated time left, early in a run, against the time that the rest took."""
    settings = (f"training.steps={ETA_STEPS}", "evaluation.every=20", "evaluation.bleu=true", "checkpoint.every=20")
    with tempfile.TemporaryDirectory() as folder:
        train_locally(data, Path(folder) / "run", *settings)
        events = RunFolder(Path(folder) / "run").events()
    yield from judge_remaining_time(events, ETA_STEPS)


def measure_step_timing(data: Path) -> Iterator[Figure]:
    """Sum of the parts against step times, and sum of steps, evaluations and checkpoints against wall time."""
    with Hosts(["a"], quotas={"a": 1.0}) as hosts:
        settings = ("training.steps=120", "evaluation.every=40", "checkpoint.every=20")
        run = HostLauncher(hosts, data).run("a", *settings)
        events = run.folder().events()
        steps = run.steps()
    parts_s = sum(getattr(step, part) for step in steps for part in PART_FIELDS)
    steps_s, other_s = sum(step.step_s for step in steps), sum_outside_s(events)
    wall_s = _time_of(events, RunEnded) - _time_of(events, RunStarted)
    sums = {
        "sum of the parts of steps against their wall time": parts_s / steps_s - 1,
        "sum of steps, evaluations, checkpoints and averaging against the run's wall time": (steps_s + other_s) / wall_s
        - 1,
    }
    for name, error in sums.items():
        yield Figure(name, f"{error:+.2%}", "within 2 %", error)


def _time_of(events: Sequence[Event], kind: type[Event]) -> float:
    return next(event.at_s for event in events if isinstance(event, kind))


def measure_telemetry(data: Path) -> Iterator[Figure]:
    """Cost of all telemetry: recording of events, sensors, the norm for the gradient noise scale, and event sync."""
    settings = resolve("tiny", ["training.steps=60", *NO_EVALUATION]).settings
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer, recorded = train_in_process(settings, DataSet(data), RunFolder(Path(folder) / "run"))
    step_s = statistics.median(step.step_s for step in recorded.steps)
    gradients = [torch.randn_like(parameter) for parameter in trainer._replica.model.parameters()]
    norm_s = median_s(lambda: torch.nn.utils.get_total_norm(gradients), ROUNDS)
    costs = {
        "recording": recorded.steps_s / sum(step.step_s for step in recorded.steps),
        "sensors": measure_sensors(),
        "gradient noise": norm_s / NORM_EVERY / step_s,
        "event sync": _measure_event_sync_s() / event_sync.EVERY_S,
    }
    total = sum(costs.values())
    parts = ", ".join(f"{name} {cost:.3%}" for name, cost in costs.items())
    yield Figure("cost of all telemetry", f"{total:.2%} ({parts})", "under 1 %", total)


def _measure_event_sync_s() -> float:
    """Time in which two workers without shared storage exchange the events of ten seconds."""
    with tempfile.TemporaryDirectory() as folder, ThreadWorkers("a", "b") as workers:
        syncs = {cluster.rank: EventSync(RunFolder(Path(folder) / cluster.host)) for cluster in workers.clusters}

        def work(cluster: ThreadCluster) -> float:
            sync = syncs[cluster.rank]

            def exchange() -> None:
                for event in (host_sample(cluster.host, 1), *synthetic_run(3)[-2:]):
                    sync.add(event)
                sync.sync(cluster, [0, 1])

            return median_s(exchange, ROUNDS)

        return max(workers(work))


def measure_report(_data: Path) -> Iterator[Figure]:
    """The report of a long run: time to write it, its size, and the time until a browser shows it."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        log = EventLog(run.events_of(0))
        run.config.write_text("{}")
        for event in synthetic_run(REPORT_STEPS, evaluate_every=2000):
            log.record(event)
        log.close()
        report_s = measure_s(lambda: run_dragoman("report", run.path))
        report = run.path / REPORT_FILE
        size_mb = report.stat().st_size / 1e6
        paint_s = _measure_first_paint_s(report)
    name = f"report of {REPORT_STEPS:,} steps"
    yield Figure(f"{name}: time to write", f"{report_s:.1f} s", "", report_s)
    yield Figure(f"{name}: size", f"{size_mb:.2f} MB", "under 3 MB", size_mb)
    yield Figure(f"{name}: first paint", f"{paint_s:.2f} s", "under 1 s", paint_s)


def _measure_first_paint_s(page_file: Path) -> float:
    from playwright.sync_api import sync_playwright  # GPU machines may not have it.

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return float(paint_ms) / 1000


if __name__ == "__main__":
    main()
