"""The event recorder: stamps each event with its worker, and passes it to the log, the event sync and the views."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.event_sync import EventSync
from dragoman.event_log import EventLog
from dragoman.events import Event, RunEnded
from dragoman.run_folder import RunFolder
from dragoman.telemetry.sensors import Sensors
from dragoman.telemetry.sinks import Sink


class EventRecorder:
    """Writes every event to this worker's log; the main worker also passes them to sinks (terminal, TensorBoard).

    The first worker of each machine adds the machine's sensor readings.
    """

    def __init__(
        self, run: RunFolder, log: EventLog, cluster: Cluster, make_sinks: Callable[[Event], Sequence[Sink]]
    ) -> None:
        self._log, self._cluster = log, cluster
        self._make_sinks = make_sinks
        """Called with the first event that this worker has to show."""
        self.event_sync = EventSync(run)
        self._sinks: Sequence[Sink] = []
        reads_sensors = os.environ.get("LOCAL_RANK", "0") == "0"
        self._sensors = Sensors(cluster.host, self.log) if reads_sensors else None

    def record(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._stop_sensors()  # The end of a run is the last event of its log.
        event = self.log(event)
        # The main worker may change: where machines come and go, the next one takes over.
        if self._cluster.is_main:
            self._sinks = self._sinks or self._make_sinks(event)
            for sink in self._sinks:
                sink.record(event)

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
        for sink in self._sinks:
            sink.close()
        self._log.close()
