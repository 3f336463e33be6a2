"""`dragoman watch`: the live page of runs."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    open_console,
)


def watch(
    runs: Annotated[list[Path], typer.Argument(help="Runs to show, beside each other.", show_default=False)],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's own need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8090,
) -> None:
    """Show running or finished runs on a live page.

    The page belongs to the reader: closing it, or ending this command, does not touch the training.

    **Examples**

        dragoman watch runs/base

        dragoman watch runs/base runs/bf16 --host 0.0.0.0 --port 8090
    """
    from dragoman.insight.live_server import serve

    serve(runs, host, port, open_console())
