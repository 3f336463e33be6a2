"""Files and folders written atomically: a reader sees the old content or the new, never a part.

Until it is complete, a file or folder is a *draft* under another name, which begins with a dot and names its writer.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dragoman.errors import DISK_FULL, DragomanError

ABANDONED_S = 24 * 3600.0
"""Age at which a draft counts as abandoned if its writer is on another machine, where it cannot be looked for."""
_DRAFT = re.compile(r"\.(?P<name>.+)\.(?P<machine>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{8}")


def draft_path(path: Path) -> Path:
    """A new name for a draft of `path`, in the same folder."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")


def final_path(path: Path) -> Path:
    """The path that a draft, or a file in one, has once it is complete; other paths are returned as they are."""
    return Path(*(draft["name"] if (draft := _DRAFT.fullmatch(part)) else part for part in path.parts))


@cache
def _machine() -> str:
    """The machine or container whose process numbers this process sees."""
    place = f"{socket.gethostname()} {Path('/proc/self/ns/pid').stat().st_ino}"
    return hashlib.sha256(place.encode()).hexdigest()[:8]


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk. Without this, a power failure may undo a rename."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` once it is complete and on disk."""
    temporary = draft_path(path)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if error.filename is None and error.errno in DISK_FULL:
            error.filename = str(path)  # A write to an open file does not name it.
        raise
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
        raise DragomanError(f"{path} is not valid JSON ({error}): restore or rebuild this file.") from None


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


def remove_drafts(folder: Path) -> None:
    """Remove all drafts from a folder and the folders in it. Only for a process that alone writes there."""
    for draft in list(folder.rglob(".*")):
        _remove(draft)


def remove_orphaned_drafts(folder: Path) -> None:
    """Remove the drafts from a folder whose writers no longer exist. Other processes may be writing there."""
    for draft in list(folder.glob(".*")):
        with contextlib.suppress(FileNotFoundError):
            if _is_orphaned(draft):
                _remove(draft)


def _is_orphaned(draft: Path) -> bool:
    writer = _DRAFT.fullmatch(draft.name)
    if writer is None or writer["machine"] != _machine():
        return time.time() - draft.lstat().st_mtime > ABANDONED_S
    try:
        os.kill(int(writer["process"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # A process of another user.
        return False
    return False


def _remove(draft: Path) -> None:
    if draft.is_dir() and not draft.is_symlink():
        shutil.rmtree(draft)
    else:
        draft.unlink(missing_ok=True)


def apply_umask(folder: Path) -> None:
    """Give a folder and all files in it the modes of new ones. Some libraries, and archives, set others."""
    new = draft_path(folder / "new")
    new.mkdir()  # Asking for the umask would change it for a moment, for all threads.
    mode = stat.S_IMODE(new.stat().st_mode)
    new.rmdir()
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(mode if path.is_dir() else mode & 0o666)


def publish_folder(finished: Path, path: Path) -> None:
    """Sync a finished folder to disk and give it its final name, replacing an earlier one."""
    if publish_new_folder(finished, path):
        return
    discarded = draft_path(path)
    path.replace(discarded)
    finished.replace(path)
    shutil.rmtree(discarded)
    sync_folder(path.parent)


def publish_new_folder(finished: Path, path: Path) -> bool:
    """The same, without replacing anything. False if `path` has content, even if another process was just faster."""
    apply_umask(finished)
    for file in finished.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        else:
            sync_folder(file)
    sync_folder(finished)
    try:
        finished.rename(path)  # Linux renames to the name of an empty folder, but of no other.
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    sync_folder(path.parent)
    return True
