"""Files and folders written atomically: a reader sees the old content or the new, never a part."""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk: without this, a power failure may undo a rename."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` once it is complete and on disk."""
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
    """Write a small file atomically: readers, and a crash at any moment, see the old content or the new."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON; a missing or damaged file raises a DragomanError."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DragomanError(f"{path} does not exist: check the path.") from None
    except ValueError as error:
        raise DragomanError(f"{path} is not valid JSON ({error}): it was damaged, restore or rebuild it.") from None


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a folder, or on a lock file that is created if missing.

    The kernel releases the lock when the process dies. With `wait=False`, raise BlockingIOError if it is taken.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove drafts that killed writers left in a folder. Their names begin with a dot."""
    for draft in list(folder.rglob(".*")):
        if draft.is_dir() and not draft.is_symlink():
            shutil.rmtree(draft)
        else:
            draft.unlink(missing_ok=True)


def publish_folder(finished: Path, path: Path) -> None:
    """Sync a finished folder to disk and give it its final name, replacing an earlier one."""
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
