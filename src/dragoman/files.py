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
