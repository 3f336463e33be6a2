"""Append-only event logs: one JSON line per event, readable while they are written."""

import fcntl
import os
import time
from pathlib import Path

from dragoman.events import Event, from_json, to_json
from dragoman.text_lines import split_lines

LOCK_TIMEOUT_S = 3.0
"""Grace period for a killed process to release its log."""


class EventLog:
    """The events of one worker, one JSON line each. Each line is one write, so that readers see complete lines."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def lock(self) -> bool:
        """Lock this log until it is closed or this process ends. False if another process holds the lock.

        A process that has just been killed is given a moment to exit.
        """
        deadline_s = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    return False
                time.sleep(0.1)
            else:
                return True

    def record(self, event: Event) -> None:
        self.write(to_json(event).encode() + b"\n")

    def write(self, lines: bytes) -> None:
        """Append all lines or none. On a full disk they are lost: a failed log write must not stop training."""
        try:
            written = self._file.write(lines)
        except OSError:
            written = 0
        if written < len(lines):
            self._file.truncate(os.fstat(self._file.fileno()).st_size - written)

    def close(self) -> None:
        self._file.close()


def drop_torn_line(path: Path) -> None:
    """Remove an incomplete last line of a killed writer, so that the next event starts on a new line."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                position = start + newline + 1
                break
            position = start
        if position < size:
            file.truncate(position)


def read_events(path: Path, offset: int = 0) -> tuple[list[Event], int]:
    """Events in the complete lines from `offset` on, and the next offset. Unknown events are skipped."""
    with path.open("rb") as file:
        file.seek(offset)
        text = file.read()
    end = text.rfind(b"\n") + 1
    parsed = (from_json(line) for line in split_lines(text[:end]) if line)
    return [event for event in parsed if event is not None], offset + end
