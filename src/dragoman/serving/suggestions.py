"""Suggested translations, stored as a corpus of corrections for fine-tuning."""

import json
import os
import time
from pathlib import Path

from dragoman.errors import DragomanError
from dragoman.event_log import drop_torn_line
from dragoman.files import locked

MAX_BYTES = 256 << 20
"""Size of the corrections of a language pair."""


class StoreFullError(Exception):
    """There is no room for another suggestion. The message gives the remedy."""


class SuggestionStore:
    """A folder with a JSONL file for each language pair, such as `en-de.jsonl`, in a format that `prepare` reads.

    Several servers may share a folder. A suggestion is on disk when `add` returns.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DragomanError(
                f"Cannot create the folder of suggestions {folder} ({error.strerror}): choose another one."
            ) from None
        self._folder = folder
        self._max_bytes = max_bytes

    def add(self, source: str, target: str, text: str, suggestion: str) -> None:
        """Append a suggestion. The languages are those of a model, not of a request, and may be used in a file name."""
        record = {source: text, target: suggestion, "suggested_at_s": round(time.time(), 3)}
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        path = self._folder / f"{source}-{target}.jsonl"
        with locked(path):
            drop_torn_line(path)  # Of a server that was killed, or whose disk was full, in the middle of a line.
            if path.stat().st_size + len(line) > self._max_bytes:
                raise StoreFullError("The store of suggestions is full: ask the operator of this server.")
            try:
                _append(path, line)
            except OSError as error:
                raise StoreFullError(
                    f"The suggestion could not be stored ({error.strerror}): try again later."
                ) from None


def _append(path: Path, line: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        if file.write(line) < len(line):
            raise OSError(0, "the disk is full")
        os.fsync(file.fileno())
