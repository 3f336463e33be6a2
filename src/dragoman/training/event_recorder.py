"""The event recorder: stamps each event with its worker, and passes it to the log, the event sync and the sinks."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.event_log import EventLog
from dragoman.events import Event, RunEnded, WorkerFailed
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sensors import Sensors
from dragoman.telemetry.sinks import Sink, open_curves


class EventRecorder:
    """Writes every event to this worker's log; the main worker also passes them to sinks, such as the terminal.

    One worker of each run folder writes its TensorBoard curves, so that any of them shows the run. The first worker of
    each machine adds the machine's sensor readings.
    """

    def __init__(
        self, run: RunFolder, log: EventLog, cluster: Cluster, make_sinks: Callable[[], Sequence[Sink]]
    ) -> None:
        self._run, self._log, self._cluster = run, log, cluster
        self._make_sinks = make_sinks
        """Called at the first event to show; only on the main worker."""
        self.event_sync = EventSync(run)
        self._sinks: Sequence[Sink] = []
        self._curves: Sink | None = None
        reads_sensors = os.environ.get("LOCAL_RANK", "0") == "0"
        self._sensors = Sensors(cluster.host, self.log) if reads_sensors else None

    def record(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._stop_sensors()  # The end of a run is the last event of its log.
        event = self.log(event)
        # In an elastic world another worker may become the main one, or the one that writes for its folder.
        if self._cluster.is_main and not isinstance(event, WorkerFailed):  # Its error is printed where it is handled.
            self._sinks = self._sinks or self._make_sinks()
            for sink in self._sinks:
                sink.record(event)
        if self.event_sync.leads_folder:
            self._curves = self._curves or open_curves(self._run, event)
            for each in (*self.event_sync.take_missed_evaluations(), event):
                self._curves.record(each)

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
        for sink in (*self._sinks, *([self._curves] if self._curves else [])):
            sink.close()
        self.event_sync.close()
        self._log.close()
