"""The end of a process, in a word. Needs no psutil."""

import signal


def exit_name(code: int) -> str:
    """How a process ended: `SIGKILL`, or `exit code 1`."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
