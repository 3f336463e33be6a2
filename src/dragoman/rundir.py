"""Files that are whole or absent: atomic, synced writes; and append-only logs that are readable while written."""

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.events import Event, from_json, to_json

CONFIG_FILE = "config.json"
LEAVING_S = 3.0
"""How long a process that was killed may take to be gone."""
HOLDS = {
    "weights.safetensors": "the weights to translate with",
    "trained.safetensors": "the weights as trained; the others are their running average",
    "optimizer.safetensors": "the optimizer's state: what a resume needs besides the weights",
    "state.json": "step, place in the data, best scores so far",
    "model.json": "architecture, languages, decoding settings",
    "tokenizer.model": "the SentencePiece tokenizer",
    "checksums.json": "the hash of every other file",
}
"""What the files of a checkpoint are for."""


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: without this a rename may be lost with the power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it takes the name once it is whole and on disk."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a small file so that a reader, or a crash at any moment, sees the old content or the new, never a part."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, content: Any) -> None:
    """Write JSON for people and programs alike, atomically."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON, turning what cannot be parsed into a sentence."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DragomanError(f"{path} does not exist: check the path.") from None
    except ValueError as error:
        raise DragomanError(f"{path} is not valid JSON ({error}): it was damaged, restore or rebuild it.") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same lock out, until the end of the block or of this process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed writers left in a folder: drafts, whose names all begin with a dot."""
    for draft in list(folder.rglob(".*")):
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft)
        else:
            draft.unlink(missing_ok=True)


def publish_folder(finished: Path, path: Path) -> None:
    """Give a finished folder its final name, replacing an earlier one, after all its files reached the disk."""
    for file in finished.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        else:
            sync_folder(file)
    sync_folder(finished)
    if path.exists():
        discarded = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
        path.replace(discarded)
        finished.replace(path)
        shutil.rmtree(discarded)
    else:
        finished.replace(path)
    sync_folder(path.parent)


class EventLog:
    """The events of one rank, one JSON line each. A line is written whole, so that readers never see a torn middle."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def claim(self) -> bool:
        """Be the only one who claims this log, until it is closed or this process ends. False: another is.

        Whoever was killed just now is given a moment to be gone.
        """
        until_s = time.monotonic() + LEAVING_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until_s:
                    return False
                time.sleep(0.1)
            else:
                return True

    def record(self, event: Event) -> None:
        self.write(to_json(event).encode() + b"\n")

    def write(self, lines: bytes) -> None:
        """Append lines, all or none. A disk that is full loses them: no run should die of its diary."""
        try:
            written = self._file.write(lines)
        except OSError:
            written = 0
        if written < len(lines):
            self._file.truncate(os.fstat(self._file.fileno()).st_size - written)

    def close(self) -> None:
        self._file.close()


def _drop_torn_line(path: Path) -> None:
    """Cut off what a killed writer left without a line end, so that the next event begins on a line of its own."""
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
    """Read the whole lines from `offset` on, and say where to go on later. Events of newer versions are passed over."""
    with path.open("rb") as file:
        file.seek(offset)
        text = file.read()
    end = text.rfind(b"\n") + 1
    parsed = (from_json(line) for line in text[:end].splitlines() if line)
    return [event for event in parsed if event is not None], offset + end


class RunDir:
    """The folder of a run: `config.json`, `events-WORKER.jsonl`, `checkpoints/`, `tensorboard/`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config(self) -> Path:
        return self.path / CONFIG_FILE

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def events_of(self, worker: int) -> Path:
        return self.path / f"events-{worker}.jsonl"

    def events(self, worker: int = 0) -> list[Event]:
        path = self.events_of(worker)
        return read_events(path)[0] if path.exists() else []
