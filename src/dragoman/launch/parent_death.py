"""Processes and their parents: end a process together with its parent, and become the parent of orphans."""

import ctypes
import os
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent, with this process ID, ends; exit now if it has ended."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Let descendants of this process whose parent ends become its children."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
