"""The log of a synthesis, its progress, and warnings of hosts."""

import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.errors import DragomanWarning
from dragoman.event_log import EventLog
from dragoman.events import Event
from dragoman.insight.synthesis_history import SynthesisHistory, read_synthesis
from dragoman.insight.synthesis_summary import describe_progress
from dragoman.progress_callback import NotedProgress, Progress
from dragoman.run_folder import RunFolder
from dragoman.settings import MoneySettings
from dragoman.synthesis.synthesis_folder import SynthesisDescription
from dragoman.synthesis.worker_connection import ShardResult
from dragoman.synthesis_events import ShardTranslated, SynthesisEnded, SynthesisStarted, TranslatorChanged

NOTE_INTERVAL_S = 1.0
"""Time between updates of the sentences below the progress bar."""


class SynthesisLog:
    """Records what happens. Called by the threads of all workers."""

    def __init__(self, out: Path, description: SynthesisDescription, progress: Progress) -> None:
        self._out, self._description, self._progress = out, description, progress
        self._log = EventLog(RunFolder(out).events_of(0))
        self._events: list[Event] = []
        """Those of all sessions."""
        self._noted_at_s = 0.0
        self._done_lines = 0
        self._lock = threading.Lock()

    def start(self, hosts: Sequence[str], finished: set[int], money: MoneySettings) -> None:
        described = self._description
        self._done_lines = sum(map(described.lines_of, finished))
        self._log.record(
            SynthesisStarted(
                run=self._out.absolute().name,
                version=__version__,
                model=described.model,
                languages=described.languages.direction,
                device=described.job.device,
                lines=described.lines,
                done_lines=self._done_lines,
                hosts=list(hosts),
                price_per_hour=list(money.price_per_hour),
                currency=money.currency,
            )
        )
        self._events = list(read_synthesis(self._out).events)
        self._progress("Translating lines", self._done_lines, described.lines)
        self.refresh()

    def refresh(self) -> None:
        """Show speed, time left, cost and what limits it."""
        if isinstance(self._progress, NotedProgress) and time.monotonic() - self._noted_at_s > NOTE_INTERVAL_S:
            self._noted_at_s = time.monotonic()
            self._progress.note(describe_progress(SynthesisHistory(tuple(self._events)), time.time()))

    def _record(self, event: Event) -> None:
        self._log.record(event)
        self._events.append(event)

    def host_ready(self, host: str, machine: str) -> None:
        self._record(TranslatorChanged(host=host, state="ready", detail=machine))

    def host_lost(self, host: str, reason: str) -> None:
        self._record(TranslatorChanged(host=host, state="lost", detail=reason))
        sentence = f"{host} was lost ({reason}): its shards go to others, and it is tried again."
        warnings.warn(sentence, DragomanWarning, stacklevel=2)

    def host_left_out(self, host: str, reason: str) -> None:
        self._record(TranslatorChanged(host=host, state="left out", detail=reason))
        warnings.warn(f"{host} is left out: {reason}.", DragomanWarning, stacklevel=2)

    def shard_done(self, host: str, result: ShardResult, reading_s: float) -> None:
        lines = self._description.lines_of(result.number)
        self._record(
            ShardTranslated(
                number=result.number,
                lines=lines,
                host=host,
                translating_s=round(result.seconds, 3),
                tokenizing_s=round(result.tokenizing_s, 3),
                reading_s=round(reading_s, 3),
            )
        )
        with self._lock:
            self._done_lines += lines
            self._progress("Translating lines", self._done_lines, self._description.lines)

    def interrupt(self) -> None:
        self._log.record(SynthesisEnded(reason="interrupted"))

    def finish(self, made: dict[str, Any], writing_s: float) -> None:
        """Record the end; `made` is the corpus."""
        counts = {name: made[name] for name in ("read_lines", "translated_pairs", "kept_pairs")}
        dropped = {rule: entry["pairs"] for rule, entry in made["dropped"].items()}
        self._log.record(SynthesisEnded(reason="finished", dropped=dropped, writing_s=round(writing_s, 3), **counts))

    def close(self) -> None:
        self._log.close()
