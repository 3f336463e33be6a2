"""Errors that a user can fix. Each message is one clear sentence that names the place and the remedy."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

EXIT_USER_ERROR = 2
"""Exit code after an error that the user can fix."""
EXIT_WORKERS_LOST = 3
"""Exit code of a worker whose static world has lost another worker."""
EXIT_DIVERGED = 4
"""Exit code of a worker whose elastic run has diverged."""
EXIT_RESUMABLE = 75
"""Exit code of a run that a signal stopped, after it was saved: the same command resumes it. Supervisors restart on it;
sysexits.h calls it EX_TEMPFAIL."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


_WRITE_REMEDIES = {
    os.strerror(code): remedy
    for remedy, codes in {
        "free some disk space": DISK_FULL,
        "allow your user to write there": (errno.EACCES, errno.EPERM),
        "mount that disk writable": (errno.EROFS,),
        "move the file that is in the place of a folder": (errno.EEXIST, errno.ENOTDIR),
    }.items()
    for code in codes
}


def write_remedy(reason: str | None) -> str:
    """What helps against the reason for which the system refused to write. Libraries add to the system's words."""
    return next((remedy for words, remedy in _WRITE_REMEDIES.items() if words in (reason or "")), "check its disk")


class DragomanError(Exception):
    """A problem with a remedy. The command line prints its message without a traceback and exits with 2."""


class DragomanWarning(UserWarning):
    """Something that a user would want to know, although the work continues. The command line prints its message."""


class CorpusError(DragomanError):
    """Text that cannot be used, with its file and, if known, the line."""

    def __init__(self, message: str, path: Path | str | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(f"{place}{message}")
        self.path = path
        self.line = line


class DownloadError(DragomanError):
    """A file that could not be downloaded completely."""


class SettingsError(DragomanError):
    """All problems of a set of settings at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 setting is wrong" if count == 1 else f"{count} settings are wrong"
        super().__init__("\n  ".join([f"{head}:", *self.problems]))
