"""The command line: all commands in the order of the pipeline, and the exit codes.

Heavy modules are imported only when a command runs, so that `dragoman --help` is fast.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman import __version__
from dragoman.commands.config import show_config
from dragoman.commands.demo import demo
from dragoman.commands.distill import distill
from dragoman.commands.doctor import doctor
from dragoman.commands.export import export
from dragoman.commands.inspect import inspect
from dragoman.commands.launch import launch
from dragoman.commands.learning_curve import learning_curve
from dragoman.commands.prepare import prepare
from dragoman.commands.report import report
from dragoman.commands.score import score
from dragoman.commands.serve import serve
from dragoman.commands.synthesize import synthesize
from dragoman.commands.train import train
from dragoman.commands.translate import translate
from dragoman.commands.typer_app import (
    CommandWithSettings,
    InterruptedByUserError,
    app,
    escape,
    open_console,
    with_quiet,
)
from dragoman.commands.watch import watch
from dragoman.errors import DISK_FULL, EXIT_USER_ERROR, DragomanError, DragomanWarning, write_remedy
from dragoman.extras import missing_extra
from dragoman.files import final_path

EXIT_INTERRUPTED = 130

app.command(cls=CommandWithSettings)(with_quiet(prepare))
app.command(cls=CommandWithSettings)(with_quiet(train))
app.command(cls=CommandWithSettings, context_settings={"allow_interspersed_args": False})(with_quiet(launch))
app.command("learning-curve", cls=CommandWithSettings)(with_quiet(learning_curve))
app.command(cls=CommandWithSettings)(with_quiet(translate))
app.command(cls=CommandWithSettings)(with_quiet(synthesize))
app.command()(with_quiet(score))
app.command()(with_quiet(export))
app.command(cls=CommandWithSettings)(with_quiet(distill))
app.command()(with_quiet(serve))
app.command()(with_quiet(demo))
app.command(cls=CommandWithSettings)(with_quiet(doctor))
app.command()(with_quiet(report))
app.command()(with_quiet(watch))
app.command()(with_quiet(inspect))
app.command("config", cls=CommandWithSettings)(with_quiet(show_config))


def main() -> None:
    """Run a command. A user's error prints one sentence; a traceback is a bug."""
    warnings.showwarning = _show_warning
    try:
        app(standalone_mode=True)
    except DragomanError as error:
        _fail(str(error), EXIT_USER_ERROR)
    except InterruptedByUserError as interrupted:
        _fail(str(interrupted), EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        sentence = missing_extra(error)
        if sentence is None:
            raise
        _fail(sentence, EXIT_USER_ERROR)
    except BrokenPipeError:  # `dragoman inspect DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise
        place = "A file" if error.filename is None else final_path(Path(error.filename))
        _fail(f"{place} cannot be used ({error.strerror}): {write_remedy(error.strerror)}.", EXIT_USER_ERROR)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if issubclass(category, DragomanWarning):
        note = f"[yellow]note:[/yellow] {escape(str(message))}"
        open_console(stderr=True).print(note, highlight=False, soft_wrap=True)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr)


def _fail(message: str, code: int) -> None:
    open_console(stderr=True).print(f"[bold red]error:[/bold red] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options without a command."""
