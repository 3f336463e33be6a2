"""Events as lines of JSON, and back."""

import json
import math
import re
from dataclasses import fields

import dragoman.late_worker_events
import dragoman.synthesis_events  # noqa: F401
from dragoman.events import Event


def event_name(kind: type[Event]) -> str:
    """The name of an event in the log: `StepDone` is written as `step_done`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


KINDS: dict[str, type[Event]] = {event_name(kind): kind for kind in Event.__subclasses__()}
_NAMES = {kind: name for name, kind in KINDS.items()}
_FIELDS = {kind: {item.name: item.type for item in fields(kind)} for kind in _NAMES}
"""Field names and types, computed once: a long run has many events."""


def own_fields(kind: type[Event]) -> list[str]:
    """The fields of an event, without those common to all."""
    shared = {item.name for item in fields(Event)}
    return [item.name for item in fields(kind) if item.name not in shared]


def to_json(event: Event) -> str:
    """One line of JSON. Non-finite values become strings, because JSON cannot express them."""
    content = {"event": _NAMES[type(event)], **vars(event)}
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            content[key] = str(value)
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def from_json(line: str | bytes) -> Event | None:
    """The event of a line; None if it is damaged or of another version."""
    try:
        content = json.loads(line)
        kind = KINDS[content.pop("event")]
        known = _FIELDS[kind]
        values = {key: value for key, value in content.items() if key in known}
        for key, value in values.items():
            if isinstance(value, str) and known[key] in (float, float | None):
                values[key] = float(value)
        return kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
