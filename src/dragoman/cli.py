"""The command line: its verbs in the order of the road, and how it ends.

Nothing heavy is imported before a verb is called, so that `dragoman --help` answers at once.
"""

import errno
import os
import sys
from typing import Annotated

import typer

from dragoman import __version__
from dragoman.commands.config import show_config
from dragoman.commands.demo import demo
from dragoman.commands.doctor import doctor
from dragoman.commands.export import export
from dragoman.commands.inspect import inspect
from dragoman.commands.launch import launch
from dragoman.commands.prepare import prepare
from dragoman.commands.report import report
from dragoman.commands.score import score
from dragoman.commands.serve import serve
from dragoman.commands.train import train
from dragoman.commands.translate import translate
from dragoman.commands.typer_app import InterruptedByUserError, app, escape, open_console
from dragoman.commands.watch import watch
from dragoman.errors import EXIT_MISTAKE, DragomanError

EXIT_INTERRUPTED = 130
FULL = (errno.ENOSPC, errno.EDQUOT)

app.command()(prepare)
app.command()(train)
app.command(context_settings={"allow_interspersed_args": False})(launch)
for verb in (translate, score, export, serve, demo, doctor, report, watch, inspect):
    app.command()(verb)
app.command("config")(show_config)


def main() -> None:
    """Run a command. What a user can mend is told in a sentence; a traceback means a fault of ours."""
    try:
        app(standalone_mode=True)
    except DragomanError as error:
        _fail(str(error), EXIT_MISTAKE)
    except InterruptedByUserError as interrupted:
        _fail(str(interrupted), EXIT_INTERRUPTED)
    except BrokenPipeError:  # `dragoman inspect DATA | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        place = error.filename or "A file"
        _fail(f"{place} cannot be used ({error.strerror}): see to its path, its rights and its disk.", EXIT_MISTAKE)


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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Hold options that belong to no verb."""
