"""Trackers that fail, and are late: training continues, and nothing is lost or sent twice."""

import time
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.event_log import EventLog
from dragoman.events import EvaluationDone, RunStarted, StepDone
from dragoman.pipeline import train
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry import tracker_sink
from dragoman.telemetry.curve_points import CurveBuffer, CurvePoint
from dragoman.telemetry.event_messages import message_for
from dragoman.telemetry.tracker_sink import TrackerSink
from dragoman.telemetry.trackers import TrackedRun

from ..insight.synthetic_runs import evaluation, synthetic_run
from ..small import TINY

EVENTS = synthetic_run(60)
STEPS = [event for event in EVENTS if isinstance(event, StepDone | EvaluationDone)]


class UnreliableTracker:
    """A tracker that fails in some calls, maybe after it has stored some of the points."""

    def __init__(self, failures: list[int]) -> None:
        self.stored: list[CurvePoint] = []
        self._failures = failures
        """For each call, the number of points stored before it fails; -1 does not fail."""
        self.identities: set[str] = set()
        self.has_failed = False

    def _next_failure(self) -> int:
        failure = self._failures.pop(0) if self._failures else -1
        self.has_failed |= failure >= 0
        return failure

    def recover(self) -> None:
        self._failures.clear()

    def open(self, run: TrackedRun) -> int:
        self.identities.add(run.identity)
        if self._next_failure() >= 0:
            raise ConnectionError("the server is gone\nand more")
        return max((point.step for point in self.stored), default=0)

    def log(self, points: list[CurvePoint]) -> None:
        stored = self._next_failure()
        if stored >= 0:
            self.stored += points[:stored]
            raise OSError(28, "No space left on device")
        self.stored += points

    def close(self, reason: str) -> None:
        self.reason = reason


def logged_run(folder: Path, count: int) -> RunFolder:
    """A run folder whose log has the first events."""
    run = RunFolder(folder)
    log = EventLog(run.events_of(0))
    for event in EVENTS[:count]:
        log.record(event)
    log.close()
    return run


@hypothesis.settings(max_examples=40)
@given(failures=st.lists(st.integers(-1, 5), max_size=8), logged=st.integers(3, 40))
def test_every_step_arrives_once_whatever_fails(tmp_path_factory, failures, logged):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracker_sink, "SEND_INTERVAL_S", 0.002)
        patch.setattr(tracker_sink, "RETRY_AFTER_S", 0.0)
        run = logged_run(tmp_path_factory.mktemp("runs") / "run", logged)
        last = max(event.step for event in [*STEPS[:1], *EVENTS[:logged]] if isinstance(event, StepDone))
        tracker = UnreliableTracker(list(failures))
        sink = TrackerSink("fake", tracker, run, Settings(), last)
        for number, event in enumerate(EVENTS[logged:]):
            sink.record(event)
            if number % 8 == 0:
                time.sleep(0.004)
        tracker.recover()  # At the end of a run, nobody tries again.
        sink.close()
    assert [point.step for point in tracker.stored] == list(range(1, 61))
    assert [point.step for point in tracker.stored if "eval/bleu" in point.scalars] == [40, 60]
    assert len(tracker.identities) == 1
    assert len(sink.take_failures()) == tracker.has_failed
    assert sink.take_failures() == []


def test_another_machine_that_becomes_the_main_one_continues_the_same_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker_sink, "SEND_INTERVAL_S", 0.002)
    tracker = UnreliableTracker([])
    first = logged_run(tmp_path / "a" / "run", 0)
    starts = [event for event in EVENTS if isinstance(event, RunStarted)]
    for folder in (first, logged_run(tmp_path / "b" / "run", 0)):  # Starts are known on all machines.
        log = EventLog(folder.events_of(0))
        for event in starts:
            log.record(event)
    lost = TrackerSink("fake", tracker, first, Settings(), 0)
    for event in STEPS[:30]:
        lost.record(event)
    lost.close()
    second = RunFolder(tmp_path / "b" / "run")
    log = EventLog(second.events_of(1))
    log.record(replace(starts[0], worker=1, at_s=starts[0].at_s + 0.5))
    for event in STEPS[:35]:
        log.record(replace(event, worker=1))
    sink = TrackerSink("fake", tracker, second, Settings(), 35)
    for event in STEPS[35:]:
        sink.record(event)
    sink.close()
    assert [point.step for point in tracker.stored] == list(range(1, 61))
    assert len(tracker.identities) == 1


def test_a_step_waits_for_its_evaluation():
    buffer = CurveBuffer()
    steps = [event for event in STEPS if event.step <= 40]
    buffer.add(event for event in steps if isinstance(event, StepDone))
    assert [point.step for point in buffer.ready(0, is_complete=False)][-1] == 39
    buffer.add(event for event in steps if isinstance(event, EvaluationDone))
    [last] = buffer.ready(39, is_complete=True)
    assert last.scalars.keys() >= {"train/loss", "eval/loss"}


def test_the_evaluation_of_the_starting_model_is_sent_once():
    buffer = CurveBuffer()
    buffer.add([evaluation(0, 3.0, 10.0, 1.0), *STEPS[:2]])
    assert [point.step for point in buffer.ready(-1, is_complete=False)] == [0, 1]
    assert [point.step for point in buffer.ready(1, is_complete=True)] == [2]


def test_a_run_with_a_tracker_that_fails_trains_on_and_warns_once(data, tmp_path, monkeypatch):
    tracker = UnreliableTracker([0] * 100)
    monkeypatch.setattr(tracker_sink, "TRACKERS", {"mlflow": lambda: tracker})
    monkeypatch.setattr("dragoman.training.worker.missing_packages", lambda _: [])
    monkeypatch.setattr(tracker_sink, "SEND_INTERVAL_S", 0.01)
    settings = [*TINY, "training.steps=40", 'telemetry.trackers=["mlflow"]']
    assert train("tiny", data.path, tmp_path / "run", settings=settings, workers=1).reason == "finished"
    messages = [message_for(event) for event in RunFolder(tmp_path / "run").events()]
    warnings = [message.text for message in messages if message is not None and message.level == "warning"]
    assert [text for text in warnings if "mlflow failed (ConnectionError: the server is gone)" in text] == warnings
    assert len(warnings) == 1
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_missing_package_is_one_sentence_with_the_command(data, tmp_path):
    settings = [*TINY, 'telemetry.trackers=["trackio", "wandb"]']
    with pytest.raises(DragomanError, match=r"`pip install trackio wandb`"):
        train("tiny", data.path, tmp_path / "run", settings=settings, workers=1)
    assert not (tmp_path / "run").exists()
