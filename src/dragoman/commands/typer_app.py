"""What all verbs hang in: the command line itself, and the ways to answer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="dragoman",
    help="Train translation models across whatever machines you have, and know what limits the run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script instead of tables.")]
SshConfig = Annotated[Path | None, typer.Option("--ssh-config", help="Configuration for ssh, instead of your own.")]
PythonThere = Annotated[
    str, typer.Option("--python", help="Python that has Dragoman there; by default as here.", show_default=False)
]


class InterruptedByUserError(Exception):
    """Ctrl-C, with what the user may want to know."""


def open_console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def split_arguments(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The recipe among the words, if there is one, and the settings."""
    recipes = [word for word in words if "=" not in word]
    if len(recipes) > 1:
        raise DragomanError(f"One recipe at a time, not {' and '.join(recipes)}: settings are written key=value.")
    return (recipes[0] if recipes else None), [word for word in words if "=" in word]
