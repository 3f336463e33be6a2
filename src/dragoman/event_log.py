"""Event logs: one JSON line per event, readable while they are written. From time to time their past is thinned."""

import contextlib
import fcntl
import gc
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from dragoman.event_json import from_json, to_json
from dragoman.events import Event
from dragoman.files import draft_path, remove_orphaned_drafts
from dragoman.log_reader import ThinningReader
from dragoman.text_lines import split_lines

LOCK_TIMEOUT_S = 3.0
"""Grace period for a killed process to release its log."""
THIN_AFTER_BYTES = 4_000_000
"""Growth of a log after which it is thinned: some seven thousand steps."""
BLOCK_LINES = 1000
"""Lines that are written at once."""


class EventLog:
    """The events of one worker, one JSON line each. Each line is one write, so that readers see complete lines.

    A thread thins the log when it has grown. It writes another file, which then replaces the log: whenever the process
    is killed, the log is the old one or the new one. Other processes may append to the log meanwhile.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_torn_line(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._is_locked = False
        self._writing = threading.Lock()
        """Held while the file is written to or replaced."""
        self._growth_bytes = self._file.tell()
        self._thinning: threading.Thread | None = None

    def lock(self) -> bool:
        """Lock this log until it is closed or this process ends. False if another process holds the lock.

        A process that has just been killed is given a moment to exit.
        """
        deadline_s = time.monotonic() + LOCK_TIMEOUT_S
        while not self._try_lock():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
        self._is_locked = True
        return True

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not self._was_replaced():
            return True
        self._reopen()
        return False

    def record(self, event: Event) -> None:
        self.write(to_json(event).encode() + b"\n")

    def write(self, lines: bytes) -> None:
        """Append all lines or none. On a full disk they are lost: a failed log write must not stop training."""
        with self._writing:
            self._append(lines)
            # Only the holder of the lock replaces a log. It adds what was written before.
            if not self._is_locked and self._was_replaced():
                self._reopen()
                self._append(lines)
            self._growth_bytes += len(lines)
            if self._growth_bytes > THIN_AFTER_BYTES and (self._thinning is None or not self._thinning.is_alive()):
                self._growth_bytes = 0
                self._thinning = threading.Thread(target=self._thin, name="thin event log", daemon=True)
                self._thinning.start()

    def _append(self, lines: bytes) -> None:
        try:
            written = self._file.write(lines)
        except OSError:
            written = 0
        if written < len(lines):
            self._file.truncate(os.fstat(self._file.fileno()).st_size - written)

    def _was_replaced(self) -> bool:
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _reopen(self) -> None:
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def _thin(self) -> None:
        """Replace the log by a thinned one, unless another process holds it. On a full disk, it stays as it is."""
        with self._writing:
            is_mine = self._is_locked or self._try_lock()
        if is_mine:
            with contextlib.suppress(OSError), _without_garbage_collection():
                self._replace_by_thinned()
            if not self._is_locked:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _replace_by_thinned(self) -> None:
        reader = ThinningReader(self._path)
        reader.read_new()
        if not reader.is_shorter:
            return
        remove_orphaned_drafts(self._path.parent)
        draft = draft_path(self._path)
        new = draft.open("ab", buffering=0)
        try:
            for start in range(0, len(reader.lines), BLOCK_LINES):
                _write_all(new, b"".join(line.text + b"\n" for line in reader.lines[start : start + BLOCK_LINES]))
            os.fsync(new.fileno())
            fcntl.flock(new, fcntl.LOCK_EX)
            with self._writing, self._path.open("rb") as old:
                old.seek(reader.offset)
                _write_all(new, old.read())
                draft.replace(self._path)
                self._file.close()
                self._file = new
                _write_all(new, old.read())  # By other processes, just before.
        finally:
            if self._file is not new:
                new.close()
                draft.unlink(missing_ok=True)

    def close(self) -> None:
        if self._thinning is not None:
            self._thinning.join()
        if self._growth_bytes > THIN_AFTER_BYTES:  # Since the thread began.
            self._thin()
        self._file.close()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Thinning makes many objects, but no cycles of them. A collection would stop the training thread for a while."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write_all(file: io.FileIO, content: bytes) -> None:
    """Write all of it, or raise."""
    written = 0
    while written < len(content):
        written += file.write(content[written:])


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
