"""What insight says, against what is true: verdicts on labelled runs, predictions, forecasts, the cost of measuring.

Runs are real, on hosts made of namespaces (see `benchmarks.machines`, and `benchmarks.labelled` for those of known
kinds). Needs root, Chromium, and two cores that nobody else uses; takes about 35 minutes.

    python -m benchmarks.insight [--only verdicts doctor story eta anatomy cost page]
"""

import contextlib
import io
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import sync_playwright
from tests.distributed.thread_workers import ThreadCluster, ThreadWorkers
from tests.insight.synthetic_runs import host_sample, synthetic_run
from tests.system.hosts import Hosts

from benchmarks.labelled import EQUAL, KINDS, train_here
from benchmarks.machines import SHORT, SLOWER, THIRDS, WARM_STEPS, Line, Runs, measure
from benchmarks.overhead import TimedRecording
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.translation_judge import make_judge
from dragoman.distributed import event_sync
from dragoman.distributed.cluster import join_cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.event_log import EventLog
from dragoman.events import (
    CheckpointSaved,
    CheckpointsAveraged,
    EvaluationDone,
    Event,
    RunEnded,
    RunStarted,
    StepDone,
)
from dragoman.insight.forecast import estimate_remaining_time
from dragoman.insight.report_writer import REPORT_FILE
from dragoman.insight.run_history import build_history
from dragoman.recipe import resolve
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sensors import Sensors
from dragoman.telemetry.sinks import open_sinks
from dragoman.training.event_recorder import EventRecorder
from dragoman.training.stop_signal import StopSignal
from dragoman.training.trainer import NORM_EVERY, Trainer

RATES = ("50mbit", "100mbit", "1000mbit", None)
SENSED_S = 30.0
LONG_STEPS = 100_000


def main() -> None:
    measure(
        str(__doc__),
        {
            "verdicts": measure_verdicts,
            "doctor": measure_doctor,
            "story": measure_story,
            "eta": measure_eta,
            "anatomy": measure_anatomy,
            "cost": measure_cost,
            "page": measure_page,
        },
    )


def measure_verdicts(data: Path) -> Iterator[Line]:
    """Is what a run was made to be, and nothing else, what is said of it?"""
    for kind in KINDS:
        said = kind.make(data)
        right = said.alarms == kind.alarms and said.trained.startswith(kind.words)
        told = [*(sorted(said.alarms) or ["clean bill"]), *([f'"{said.trained[:12]}..."'] if kind.words else [])]
        verdict = ", ".join(told) + ("" if right else ": WRONG")
        yield Line(f"verdict on a run: {kind.name}", "right", verdict, float(right))


def measure_doctor(data: Path) -> Iterator[Line]:
    """The predicted time of a step against the measured one, over links, hosts and methods."""
    errors, spans = [], []
    for quotas in (dict.fromkeys("ab", 0.9), THIRDS):
        names = list(quotas)
        for rate in RATES:
            with Hosts(names, rate=rate, quotas=quotas) as bed:
                started = time.perf_counter()
                predicted = _predict(bed, names, data)
                spans.append(time.perf_counter() - started)
                runs = Runs(bed, data)
                for method, predicted_s in predicted.items():
                    words = (f"exchange.method={method}", "exchange.every=16", "exchange.wire_format=bf16")
                    run = runs.finished(",".join(names), *EQUAL, *words, "training.steps=40")
                    # By the mean: a step in which weights meet may be longer than the others.
                    measured_s = statistics.fmean(step.step_s for step in run.steps()[WARM_STEPS:])
                    error = predicted_s / measured_s - 1
                    errors.append(abs(error))
                    figure = f"doctor, {len(names)} hosts, {rate or 'unlimited'}, {method}: step"
                    shown = f"{predicted_s:.3f} s, measured {measured_s:.3f} s ({error:+.0%})"
                    yield Line(figure, "15 %", shown, error)
                    shutil.rmtree(run.folder().path)
    within = sum(error <= 0.15 for error in errors)
    yield Line("doctor: within 15 %", "all", f"{within} of {len(errors)}", within / len(errors))
    yield Line("doctor: median error", "7 %", f"{statistics.median(errors):.1%}", statistics.median(errors))
    yield Line("doctor: longest examination", "60 s", f"{max(spans):.0f} s", max(spans))


def _predict(bed: Hosts, names: Sequence[str], data: Path) -> dict[str, float]:
    """By method, from one examination."""
    others = ("bf16", "local")
    found = _consult(bed, names, data, *(word for method in others for word in ("--what-if", f"exchange={method}")))
    what_if = found["what_if"]
    methods = {"plain": found["estimate"], **{method: what_if[f"exchange={method}"] for method in others}}
    return {method: float(estimate["step_s"]) for method, estimate in methods.items()}


def _consult(bed: Hosts, names: Sequence[str], data: Path, *words: str) -> Any:
    command = [
        sys.executable, "-m", "dragoman", "doctor", "--hosts", ",".join(names), "--ssh-config", str(bed.ssh_config),
        "--json", "--data", str(data), *words, "tiny", "exchange.method=plain", *EQUAL,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measure_story(data: Path) -> list[Line]:
    """A port on which plain exchange makes steps fifteen times slower: is that said before the start, and how soon?"""
    with Hosts(["a", "b"], quotas={"a": 0.9, "b": 0.9}) as bed:
        run = Runs(bed, data).finished("a,b", *EQUAL, "exchange.method=plain", "training.steps=30")
        steps = run.steps()[WARM_STEPS:]
        step_s = statistics.median(step.step_s for step in steps)
        rate = f"{8e-3 * steps[-1].sent_bytes / ((SLOWER - 1) * step_s):.0f}kbit"
        for host in bed:
            host.set_rate(rate)
        started = time.perf_counter()
        plan = _consult(bed, ("a", "b"), data)["estimate"]
        spent_s = time.perf_counter() - started
    cause = next((each for each in plan["limits"] if each.startswith("The link from")), "")
    told = bool(cause) and not plan["sensible"] and any("exchange.method=local" in each for each in plan["remedies"])
    return [
        Line(
            f"run C again ({rate}): cause and remedy before the start, in under 60 s", "yes",
            f"{'yes' if told else 'NO'}, {spent_s:.0f} s: {cause}", float(told),
        )
    ]  # fmt: skip


def measure_eta(data: Path) -> list[Line]:
    """What was said to be left early in a run, against what was left."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train_here(
            data, out, "training.steps=400", "evaluation.every=20", "evaluation.bleu=true", "checkpoint.every=20"
        )
        events = RunFolder(out).events()
    ended_at_s = _at(events, RunEnded)
    lines = []
    for part, target in ((0.05, "10 %"), (0.2, "5 %")):
        # Just after what is due at that step: its evaluation, and its checkpoint.
        number = next(n for n, event in enumerate(events) if isinstance(event, StepDone) and event.step > 400 * part)
        known = events[:number]
        left = estimate_remaining_time(build_history(known))
        assert left is not None
        error = left.total_s / (ended_at_s - known[-1].at_s) - 1
        lines.append(Line(f"time left at {part:.0%} of a run", target, f"{error:+.1%}", error))
    return lines


def measure_anatomy(data: Path) -> list[Line]:
    """Parts against steps, and steps, evaluations and checkpoints against the clock on the wall."""
    with Hosts(["a"], quotas={"a": 1.0}) as bed:
        run = Runs(bed, data).finished("a", "training.steps=120", "evaluation.every=40", "checkpoint.every=20")
        events = run.folder().events()
        steps = run.steps()
    parts_s = sum(
        step.data_s + step.compute_s + step.communication_s + step.straggler_s + step.optimizer_s for step in steps
    )
    steps_s = sum(step.step_s for step in steps)
    apart_s = sum(event.evaluation_s for event in events if isinstance(event, EvaluationDone))
    apart_s += sum(event.stall_s for event in events if isinstance(event, CheckpointSaved))
    apart_s += sum(event.averaging_s for event in events if isinstance(event, CheckpointsAveraged))
    wall_s = _at(events, RunEnded) - _at(events, RunStarted)
    return [
        Line("parts of steps against their wall time", "2 %", f"{parts_s / steps_s - 1:+.2%}", parts_s / steps_s - 1),
        Line(
            "steps, evaluations, checkpoints and averaging against the run's wall time", "2 %",
            f"{(steps_s + apart_s) / wall_s - 1:+.2%}", (steps_s + apart_s) / wall_s - 1,
        ),
    ]  # fmt: skip


def _at(events: Sequence[Event], kind: type[Event]) -> float:
    return next(event.at_s for event in events if isinstance(event, kind))


def measure_cost(data: Path) -> list[Line]:
    """Everything that looks on: recording, sensors, the norm that tells the gradient's noise, and the post."""
    settings = resolve("tiny", ["training.steps=60", *SHORT]).settings
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run, cluster, opened = RunFolder(Path(folder) / "run"), join_cluster(), DataSet(data)
        broadcast = EventRecorder(
            run, EventLog(run.events_of(0)), cluster, lambda first: open_sinks(run, settings, first)
        )
        record = TimedRecording(broadcast)
        trainer = Trainer(settings, opened, run, cluster, make_judge(settings, opened), record, broadcast.event_sync)
        trainer.train(StopSignal())
        broadcast.close()
        cluster.close()
    steps = record.steps
    step_s = statistics.median(step.step_s for step in steps)
    gradients = [torch.randn_like(parameter) for parameter in trainer._replica.model.parameters()]
    norm_s = _median_time(lambda: torch.nn.utils.get_total_norm(gradients)) / NORM_EVERY
    parts = {
        "recording": record.steps_s / sum(step.step_s for step in steps),
        "sensors": _sensing(),
        "gradient noise": norm_s / step_s,
        "post": _posting() / event_sync.EVERY_S,
    }
    shown = ", ".join(f"{name} {share:.3%}" for name, share in parts.items())
    return [Line("cost of all telemetry", "1 %", f"{sum(parts.values()):.2%} ({shown})", sum(parts.values()))]


def _sensing() -> float:
    """The processor time that looking takes, of one core."""
    watching = Sensors("here", lambda _: None)
    started_s, began = time.process_time(), time.perf_counter()
    time.sleep(SENSED_S)
    watching.close()
    return (time.process_time() - started_s) / (time.perf_counter() - began)


def _posting() -> float:
    """How long two workers with folders of their own take to exchange ten seconds of news."""
    with tempfile.TemporaryDirectory() as folder, ThreadWorkers("a", "b") as crew:
        posts = {cluster.rank: EventSync(RunFolder(Path(folder) / cluster.host)) for cluster in crew.clusters}

        def work(cluster: ThreadCluster) -> float:
            mine = posts[cluster.rank]

            def exchange() -> None:
                for event in (host_sample(cluster.host, 1), *synthetic_run(3)[-2:]):
                    mine.add(event)
                mine.sync(cluster, [0, 1])

            return _median_time(exchange)

        return max(crew(work))


def _median_time(work: Callable[[], object]) -> float:
    spans = []
    for _ in range(20):
        started = time.perf_counter()
        work()
        spans.append(time.perf_counter() - started)
    return statistics.median(spans)


def measure_page(_data: Path) -> list[Line]:
    """A long run's report: how long it takes to make, how big it is, and when a browser shows it."""
    with tempfile.TemporaryDirectory() as name:
        run = RunFolder(Path(name) / "run")
        log = EventLog(run.events_of(0))
        run.config.write_text("{}")
        for event in synthetic_run(LONG_STEPS, evaluate_every=2000):
            log.record(event)
        log.close()
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "dragoman", "report", str(run.path)], check=True, capture_output=True)
        made_s = time.perf_counter() - started
        report = run.path / REPORT_FILE
        size_mb = report.stat().st_size / 1e6
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page()
            page.goto(report.as_uri())
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
            paint_s = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
            browser.close()
    long = f"report of {LONG_STEPS:,} steps"
    return [
        Line(f"{long}: made in", "", f"{made_s:.1f} s", made_s),
        Line(f"{long}: size", "3 MB", f"{size_mb:.2f} MB", size_mb),
        Line(f"{long}: first paint", "1 s", f"{paint_s:.2f} s", paint_s),
    ]


if __name__ == "__main__":
    main()
