"""Sinks for experiment trackers. Whatever happens to a tracker, training continues."""

import hashlib
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from dragoman.event_log import read_events
from dragoman.events import EvaluationDone, Event, RunEnded, RunStarted, StepDone
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.curve_points import CurveBuffer
from dragoman.telemetry.trackers import TRACKERS, TrackedRun, Tracker
from dragoman.text_lines import split_lines

SEND_INTERVAL_S = 2.0
RETRY_AFTER_S = 60.0
"""Time between a failure and the next attempt."""
CLOSE_TIMEOUT_S = 20.0
"""Time at the end of a run for a tracker to receive what is left."""


class TrackerSink:
    """Sends the curves of a run to a tracker, from a thread: a slow or lost server must not slow down training.

    Each step is sent once. At the start, and after each failure, the tracker is asked for its last step; steps of
    earlier sessions that it lacks are read from the event logs.
    """

    def __init__(self, name: str, tracker: Tracker, run: RunFolder, settings: Settings, first_step: int) -> None:
        self.name = name
        self._tracker, self._run, self._settings, self._first_step = tracker, run, settings, first_step
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._buffer = CurveBuffer()
        self._sent_step: int | None = None
        """Last step that the tracker has; None if it is not open."""
        self._reason = ""
        self._failures: list[str] = []
        self._has_failed = False
        self._thread = threading.Thread(target=self._send_all, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        if isinstance(event, StepDone | EvaluationDone | RunEnded):
            self._events.put(event)

    def take_failures(self) -> list[str]:
        """The reason for the first failure. It is returned once."""
        failures, self._failures = self._failures, []
        return failures

    def close(self) -> None:
        self._events.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _send_all(self) -> None:
        retry_at_s = 0.0
        is_ending = False
        with suppress(OSError):
            self._buffer.add(_earlier_events(self._run, self._first_step))
        while not is_ending:
            is_ending = self._take_events()
            if is_ending or time.monotonic() >= retry_at_s:
                try:
                    self._send(is_ending)
                except Exception as error:  # Of any kind: these are large libraries, and servers.
                    retry_at_s = time.monotonic() + RETRY_AFTER_S
                    self._sent_step = None
                    self._report(error)

    def _take_events(self) -> bool:
        """Wait for some time, and buffer new events. True at the end of the run."""
        deadline_s = time.monotonic() + SEND_INTERVAL_S
        with suppress(queue.Empty):
            while (left_s := deadline_s - time.monotonic()) > 0:
                event = self._events.get(timeout=left_s)
                if event is None:
                    return True
                if isinstance(event, RunEnded):
                    self._reason = event.reason
                self._buffer.add([event])
        return False

    def _send(self, is_ending: bool) -> None:
        if self._sent_step is None:
            self._sent_step = self._tracker.open(_describe(self._run, self._settings))
        points = self._buffer.ready(self._sent_step, is_complete=is_ending)
        if points:
            self._tracker.log(points)
            self._sent_step = points[-1].step
        if is_ending:
            self._tracker.close(self._reason)

    def _report(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            lines = split_lines(str(error).strip())
            self._failures.append(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def _earlier_events(run: RunFolder, last_step: int) -> Iterable[Event]:
    """The steps and evaluations in the logs of a run, up to a step: those after it are done again."""
    for log in run.event_logs():
        for event in read_events(log)[0]:
            if isinstance(event, StepDone | EvaluationDone) and event.step <= last_step:
                yield event


def _describe(run: RunFolder, settings: Settings) -> TrackedRun:
    starts = [event for log in run.event_logs() for event in read_events(log)[0] if isinstance(event, RunStarted)]
    # The start of the first session is the same in the folders of all machines.
    first = min(starts, key=lambda event: event.session_at_s)
    identity = hashlib.blake2b(f"{first.session_at_s!r} {first.data_hash}".encode(), digest_size=6).hexdigest()
    flat = {
        f"{section}.{name}": value
        for section, values in settings.model_dump(mode="json").items()
        for name, value in values.items()
    }
    return TrackedRun(identity, run.path.name, settings.telemetry.project, run.path.absolute(), flat)


def open_trackers(run: RunFolder, settings: Settings, first: Event) -> Sequence[TrackerSink]:
    """The sinks of all trackers in the settings, from the first event to show on."""
    first_step = first.resumed_step if isinstance(first, RunStarted) else getattr(first, "step", 0)
    chosen = [name for name in settings.telemetry.trackers if name in TRACKERS]
    return [TrackerSink(name, TRACKERS[name](), run, settings, first_step) for name in chosen]
