"""The event recorder: stamps each event with its worker, and passes it to the log, the event sync and the sinks."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.event_log import EventLog
from dragoman.events import Event, RunEnded, TrackerFailed, WorkerFailed
from dragoman.run_folder import RunFolder
from dragoman.settings import Settings
from dragoman.telemetry.sensors import Sensors
from dragoman.telemetry.sinks import Sink, open_curves
from dragoman.telemetry.tracker_sink import TrackerSink, open_trackers


class EventRecorder:
    """Writes every event to this worker's log; the main worker also passes them to sinks, such as the terminal.

    One worker of each run folder writes its TensorBoard curves, so that any of them shows the run; other trackers have
    one run, which the main worker writes. The first worker of
    each machine adds the machine's sensor readings.
    """

    def __init__(
        self,
        run: RunFolder,
        log: EventLog,
        cluster: Cluster,
        make_sinks: Callable[[], Sequence[Sink]],
        settings: Settings,
    ) -> None:
        self._run, self._log, self._cluster, self._settings = run, log, cluster, settings
        self._make_sinks = make_sinks
        """Called at the first event to show; only on the main worker."""
        self.event_sync = EventSync(run)
        self._sinks: Sequence[Sink] = []
        self._curves: Sink | None = None
        self._trackers: Sequence[TrackerSink] | None = None
        reads_sensors = os.environ.get("LOCAL_RANK", "0") == "0"
        self._sensors = Sensors(cluster.host, self.log) if reads_sensors else None

    def record(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._stop_sensors()  # The end of a run is the last event of its log.
        event = self.log(event)
        # In an elastic world another worker may become the main one, or the one that writes for its folder.
        if self._cluster.is_main and not isinstance(event, WorkerFailed):  # Its error is printed where it is handled.
            self._sinks = self._sinks or self._make_sinks()
            if self._trackers is None:
                self._trackers = open_trackers(self._run, self._settings, event)
            for sink in (*self._sinks, *self._trackers):
                sink.record(event)
            self._record_failures(getattr(event, "step", 0))
        if self.event_sync.leads_folder and "tensorboard" in self._settings.telemetry.trackers:
            self._curves = self._curves or open_curves(self._run, event)
            for each in (*self.event_sync.take_missed_evaluations(), event):
                self._curves.record(each)

    def _record_failures(self, step: int) -> None:
        """Record the failures of trackers, here and not in their threads, because the terminal shows them."""
        for tracker in self._trackers or ():
            for reason in tracker.take_failures():
                self.record(TrackerFailed(step=step, tracker=tracker.name, reason=reason))

    def log(self, event: Event) -> Event:
        """Log an event without showing it. Returns it with its worker."""
        event = replace(event, worker=self._cluster.worker)
        self._log.record(event)
        self.event_sync.add(event)
        return event

    def _stop_sensors(self) -> None:
        if self._sensors is not None:
            self._sensors.close()
            self._sensors = None

    def close(self) -> None:
        self._stop_sensors()
        for sink in (*self._sinks, *([self._curves] if self._curves else []), *(self._trackers or ())):
            sink.close()
        self.event_sync.close()
        self._log.close()
