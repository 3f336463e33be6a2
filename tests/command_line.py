"""Commands in the process of a test: in processes of their own most of the time would go into importing torch."""

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import typer

from dragoman import cli
from dragoman.worker_environment import QUIET


def run_command(*words: str, stdin: str = "", cwd: Path | None = None) -> "CompletedProcess[str]":
    """Run `dragoman` with these words; give its exit code and output as `subprocess.run` does."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True) for _ in range(2))
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as given,
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        given.write(stdin)
        given.seek(0)
        patch.setattr(sys, "stdin", given)
        patch.setattr(sys, "argv", ["dragoman", *words])
        patch.setenv(QUIET, "")  # Restored at the end: --quiet sets it for the process.
        if cwd is not None:
            patch.chdir(cwd)
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return CompletedProcess(words, code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def parse_command(words: list[str]) -> dict[str, Any]:
    """What the command line makes of a command of ours."""
    return typer.main.get_group(cli.app).commands[words[0]].make_context(words[0], words[1:]).params
