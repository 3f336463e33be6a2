"""What insight says, against what is true: verdicts on labelled runs, the doctor's predictions, the cost of measuring.

Runs are real, on hosts made of namespaces (see `benchmarks.machines`), each made to be of one kind: by a slow link, a
quota, or nothing. Needs root, Chromium, and two cores that nobody else uses; takes about 20 minutes.

    python -m benchmarks.insight [--only verdicts doctor anatomy sensors page]
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.insight.runs import made_run
from tests.system.hosts import Hosts

from benchmarks.machines import SHORT, WARM_STEPS, Line, Run, Runs, measure
from dragoman.events import CheckpointSaved, EvaluationDone, Event, RunEnded, RunStarted
from dragoman.insight.limits import find_limits
from dragoman.insight.report import REPORT_FILE
from dragoman.insight.story import read_story
from dragoman.insight.verdicts import answer_all
from dragoman.rundir import EventLog, RunDir
from dragoman.telemetry.sensors import Sensors

EQUAL = ("training.shares=equal", *SHORT)
RATES = ("50mbit", "100mbit", "1000mbit", None)
SENSED_S = 30.0
LONG_STEPS = 100_000


def main() -> None:
    measure(
        str(__doc__),
        {
            "verdicts": measure_verdicts,
            "doctor": measure_doctor,
            "anatomy": measure_anatomy,
            "sensors": measure_sensors,
            "page": measure_page,
        },
    )


def measure_verdicts(data: Path) -> list[Line]:
    """Runs that were made to be of a kind: is that, and nothing else, what is said of them?"""
    kinds: Sequence[tuple[str, str, set[str], dict[str, float], str | None, Sequence[str]]] = (
        ("healthy, one host", "a", set(), {"a": 1.0}, None, ()),
        ("healthy, two hosts", "a,b", set(), {"a": 0.9, "b": 0.9}, None, ("exchange.method=plain",)),
        ("network-bound", "a,b", {"network"}, {"a": 0.9, "b": 0.9}, "30mbit", ("exchange.method=plain",)),
        ("slow peer", "a,b", {"straggler"}, {"a": 0.9, "b": 0.3}, None, ("exchange.method=plain",)),
    )
    lines = []
    for kind, hosts, expected, quotas, rate, words in kinds:
        with Hosts(list(quotas), rate=rate, quotas=quotas) as bed:
            run = Runs(bed, data).finished(hosts, *EQUAL, *words, "training.steps=60")
            said = _alarms(run)
        right = float(said == expected)
        lines.append(Line(f"verdict on a run: {kind}", "right", ", ".join(sorted(said)) or "clean bill", right))
    return lines


def _alarms(run: Run) -> set[str]:
    story = read_story(run.folder().path)
    return {answer.key for answer in (*find_limits(story), *answer_all(story)) if answer.alarm}


def measure_doctor(data: Path) -> list[Line]:
    """The predicted time of a step against the measured one, over links and methods."""
    errors, spans = [], []
    lines = []
    for rate in RATES:
        with Hosts(["a", "b"], rate=rate, quotas={"a": 0.9, "b": 0.9}) as bed:
            for method in ("plain", "bf16"):
                words = (f"exchange.method={method}", *EQUAL)
                started = time.perf_counter()
                predicted_s = _predict(bed, words)
                spans.append(time.perf_counter() - started)
                run = Runs(bed, data).finished("a,b", *words, "training.steps=40")
                measured_s = statistics.median(step.step_s for step in run.steps()[WARM_STEPS:])
                errors.append(abs(predicted_s / measured_s - 1))
                shown = f"{predicted_s:.3f} s, measured {measured_s:.3f} s"
                figure = f"doctor, {rate or 'unlimited'}, {method}: step"
                lines.append(Line(figure, "15 %", f"{shown} ({predicted_s / measured_s - 1:+.0%})", predicted_s))
                shutil.rmtree(run.folder().path)
    lines.append(Line("doctor: median error", "7 %", f"{statistics.median(errors):.1%}", statistics.median(errors)))
    lines.append(Line("doctor: longest examination", "60 s", f"{max(spans):.0f} s", max(spans)))
    return lines


def _predict(bed: Hosts, words: Sequence[str]) -> float:
    command = [
        sys.executable, "-m", "dragoman", "doctor", "--hosts", "a,b", "--ssh-config", str(bed.ssh_config), "--json",
        "tiny", *words,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["plans"]["as it is"]["step_s"])


def measure_anatomy(data: Path) -> list[Line]:
    """Parts against steps, and steps, evaluations and checkpoints against the clock on the wall."""
    with Hosts(["a"], quotas={"a": 1.0}) as bed:
        run = Runs(bed, data).finished("a", "training.steps=120", "evaluation.every=40", "checkpoint.every=20")
        events = run.folder().events()
        steps = run.steps()
    parts_s = sum(step.data_s + step.compute_s + step.exchange_s + step.update_s for step in steps)
    steps_s = sum(step.step_s for step in steps)
    apart_s = sum(event.evaluation_s for event in events if isinstance(event, EvaluationDone))
    apart_s += sum(event.blocked_s for event in events if isinstance(event, CheckpointSaved))
    wall_s = _at(events, RunEnded) - _at(events, RunStarted)
    return [
        Line("parts of steps against their wall time", "2 %", f"{parts_s / steps_s - 1:+.2%}", parts_s / steps_s - 1),
        Line(
            "steps, evaluations and checkpoints against the run's wall time", "2 %",
            f"{(steps_s + apart_s) / wall_s - 1:+.2%}", (steps_s + apart_s) / wall_s - 1,
        ),
    ]  # fmt: skip


def _at(events: Sequence[Event], kind: type[Event]) -> float:
    return next(event.at_s for event in events if isinstance(event, kind))


def measure_sensors(_data: Path) -> list[Line]:
    """The processor time that looking takes, of one core."""
    watching = Sensors("here", 0, lambda _: None)
    started_s, began = time.process_time(), time.perf_counter()
    time.sleep(SENSED_S)
    watching.close()
    share = (time.process_time() - started_s) / (time.perf_counter() - began)
    return [Line("sensors, of one core", "1 %", f"{share:.2%}", share)]


def measure_page(_data: Path) -> list[Line]:
    """A long run's report: how long it takes to make, how big it is, and when a browser shows it."""
    with tempfile.TemporaryDirectory() as name:
        run = RunDir(Path(name) / "run")
        log = EventLog(run.events_of(0))
        run.config.write_text("{}")
        for event in made_run(LONG_STEPS, evaluate_every=2000):
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
