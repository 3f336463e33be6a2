"""The Typer application, and the options and output functions that commands share."""

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from dragoman.errors import DragomanError
from dragoman.worker_environment import QUIET

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="dragoman",
    help="Train translation models on the machines you have, and know what limits the run.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show only results, warnings and errors.")]
SshConfig = Annotated[Path | None, typer.Option("--ssh-config", help="OpenSSH configuration file (default: your own).")]
RemotePython = Annotated[
    str, typer.Option("--python", help="Remote Python interpreter (default: same path as local).", show_default=False)
]


def complete_recipe(incomplete: str) -> list[str]:
    """Shipped recipes that begin like this, for shells. Without the settings, whose import takes long."""
    recipes = Path(__file__).parents[1] / "recipes"
    return sorted(path.stem for path in recipes.glob("*.toml") if path.stem.startswith(incomplete))


RecipeName = Annotated[
    str,
    typer.Argument(
        help="A shipped recipe, or the path of a TOML file.", autocompletion=complete_recipe, show_default=False
    ),
]
LocalWorkers = Annotated[
    int | None, typer.Option(min=1, max=256, help="Workers on this machine (default: one per GPU, or one).")
]


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option --quiet, which all commands have. `open_console` obeys it."""

    @functools.wraps(command)
    def run(quiet: bool = False, **options: Any) -> None:
        if quiet:
            os.environ[QUIET] = "1"  # Workers that this process starts are quiet, too.
        command(**options)

    signature = inspect.signature(command)
    quiet = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), quiet])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "quiet": Quiet}
    return run


NAMES_ELSEWHERE = {"lr": "learning_rate", "batch_size": "tokens"}
"""Options of other toolkits, and the names of our settings. Their values have other units."""


class CommandWithSettings(TyperCommand):
    """A command that takes settings as key=value. Written as an option, a setting gets an error that says how."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        for argument, following in zip(args, [*args[1:], ""], strict=False):
            name, equals, value = argument.partition("=")
            if name == "--":
                break
            if name.startswith("--") and name not in options:
                from dragoman.recipe import settings_named

                meant_name = name.rpartition(".")[2].removeprefix("--").replace("-", "_")
                found = settings_named(NAMES_ELSEWHERE.get(meant_name, meant_name))
                if found:
                    if meant_name in NAMES_ELSEWHERE:
                        value = "VALUE"
                    elif not equals:
                        value = following.removeprefix("--") or "VALUE"
                    meant = " or ".join(f"{key}={value}" for key in found)
                    raise DragomanError(f"{name} is not an option: settings are written key=value. Use {meant}.")
        return super().parse_args(ctx, args)


class InterruptedByUserError(Exception):
    """Ctrl-C, with a message for the user."""


def open_console(*, stderr: bool = False, optional: bool = False) -> "Console":
    """A console for results, or, with `optional`, for progress and notes that `--quiet` leaves out."""
    from rich.console import Console

    return Console(stderr=stderr, quiet=optional and bool(os.environ.get(QUIET)))


def escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


@contextlib.contextmanager
def only_json(as_json: bool) -> Iterator[None]:
    """Leave standard output to the JSON, if it is wanted: what training prints goes to standard error, and is quiet."""
    if as_json:
        os.environ[QUIET] = "1"  # Also for workers.
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        yield


def print_json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def split_arguments(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split arguments into the recipe, if there is one, and key=value settings."""
    recipes = [word for word in words if "=" not in word]
    if len(recipes) > 1:
        raise DragomanError(f"One recipe at a time, not {' and '.join(recipes)}: settings are written key=value.")
    return (recipes[0] if recipes else None), [word for word in words if "=" in word]
