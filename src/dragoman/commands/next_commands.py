"""The commands that a user is likely to run next: `prepare`, `train`, `launch` and `demo` end with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.command_line import command_line
from dragoman.commands.typer_app import open_console

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.settings import Settings

TRAINED = ("finished", "patience")
"""Reasons for the end of a run after which there is a model to use."""


def show_next_commands(commands: Mapping[str, str], console: "Console", place: str = "") -> None:
    """Print commands with what they do. `place` names the machine to run them on, if it is not this one."""
    from rich.text import Text

    console.print(f"Next{place}:", highlight=False)
    width = max(map(len, commands))
    for command, purpose in commands.items():  # Not a table, which would break commands where they are too wide.
        console.print(Text(f"  {command:<{width}}  ").append(purpose, "dim"), soft_wrap=True)


def show_after_training(run: Path, settings: "Settings", place: str = "") -> None:
    """Print the next commands for a trained model, unless the output is a log of JSON lines."""
    if settings.telemetry.log_format == "json":
        return
    commands = {
        command_line("report", run): "how the run went, what limited it, what to do",
        command_line("translate", run): "translate your own sentences",
        command_line("export", run, "--out", "MODEL"): "a small, fast model for `dragoman serve`",
    }
    show_next_commands(commands, open_console(optional=True), place)
