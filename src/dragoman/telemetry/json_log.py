"""The output of training as JSON lines, for log collectors: what the terminal would show, one object a line."""

import json
import math
import time
from datetime import UTC, datetime
from typing import Any, TextIO

from dragoman.event_json import event_name
from dragoman.events import EvaluationDone, Event, SharesChanged, StepDone
from dragoman.settings import Settings
from dragoman.telemetry.event_messages import message_for
from dragoman.telemetry.throughput import ThroughputMeter
from dragoman.terminal import PLAIN_INTERVAL_S


class JsonLog:
    """A sink whose lines have `time`, `level`, `event`, `message`, and the numbers of steps and evaluations."""

    def __init__(self, file: TextIO, settings: Settings) -> None:
        self._file = file
        self._total_steps = settings.training.steps
        self._throughput = ThroughputMeter(settings)
        self._shown_at_s = -math.inf

    def record(self, event: Event) -> None:
        self._throughput.record(event)
        if isinstance(event, StepDone):
            self._show_step(event)
        elif isinstance(event, EvaluationDone):
            self._show(
                event, f"Evaluation at step {event.step}.", step=event.step, loss=event.nll,
                perplexity=event.perplexity, bleu=event.bleu, chrf=event.chrf,
            )  # fmt: skip
        elif isinstance(event, SharesChanged):
            self._show(event, f"Batch shares from step {event.step + 1} on.", step=event.step, shares=event.shares)
        elif (message := message_for(event)) is not None:
            self._show(event, message.text, message.level)

    def say(self, message: str, level: str = "info", **fields: Any) -> None:
        """Write a message that is not about an event."""
        self._write(time.time(), level, "message", message, fields)

    def close(self) -> None:
        """Nothing is buffered."""

    def _show_step(self, event: StepDone) -> None:
        if time.monotonic() - self._shown_at_s < PLAIN_INTERVAL_S:
            return
        self._shown_at_s = time.monotonic()
        remaining = self._throughput.remaining_time
        self._show(
            event, f"Step {event.step} of {self._total_steps}.", step=event.step, total_steps=self._total_steps,
            loss=event.nll, tokens_per_s=round(self._throughput.tokens_per_s),
            remaining_s=None if remaining is None else round(remaining.total_s),
        )  # fmt: skip

    def _show(self, event: Event, message: str, level: str = "info", **fields: Any) -> None:
        self._write(event.at_s, level, event_name(type(event)), message, fields)

    def _write(self, at_s: float, level: str, name: str, message: str, fields: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
        # JSON has no infinity and no NaN.
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in fields.items()
        }
        content = {"time": moment, "level": level, "event": name, "message": message, **finite}
        self._file.write(json.dumps(content, ensure_ascii=False) + "\n")
        self._file.flush()
