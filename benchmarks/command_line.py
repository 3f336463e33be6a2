"""Command lines: the arguments of a benchmark, and `dragoman` as a subprocess."""

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

NEVER = 10**6
"""An interval in steps that no run reaches."""
NO_EVALUATION = (f"evaluation.every={NEVER}", "evaluation.bleu=false", f"checkpoint.every={NEVER}")
"""Settings of a run with training steps only: one evaluation of the loss and one checkpoint, at the end."""


def make_parser(
    doc: str | None, sections: Iterable[str] = (), default: Iterable[str] | None = None
) -> argparse.ArgumentParser:
    """Parser with the docstring of a module as its help, and with `--only` if the benchmark has several sections."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(sections)
    if names:
        chosen = names if default is None else list(default)
        help_text = (
            f"measure only these, of {', '.join(names)} (default: {'all' if chosen == names else ', '.join(chosen)})"
        )
        parser.add_argument("--only", nargs="+", choices=names, default=chosen, metavar="SECTION", help=help_text)
    return parser


def dragoman_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "dragoman", *map(str, arguments)]


def run_dragoman(*arguments: str | Path) -> None:
    """Run a command of Dragoman to its end. A failure ends the benchmark, with the command's output."""
    dragoman_output(*arguments)


def dragoman_output(*arguments: str | Path) -> str:
    """The same, and return what it printed."""
    process = subprocess.run(dragoman_command(*arguments), capture_output=True, text=True, check=False)
    if process.returncode:
        output = f"{process.stdout[-2000:]}{process.stderr[-2000:]}"
        raise SystemExit(f"dragoman {arguments[0]} exited with status {process.returncode}: {output}")
    return process.stdout
