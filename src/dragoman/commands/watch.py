"""`dragoman watch`: the live page of runs."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import open_console


def watch(
    runs: Annotated[list[Path], typer.Argument(help="Run directories. Several are compared.", show_default=False)],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Addresses other than loopback require a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port (0: any free port).")] = 8090,
) -> None:
    """Show running or finished runs on a live page.

    Stopping this command, or closing the page, does not affect the training.

    **Examples**

        dragoman watch runs/base

        dragoman watch runs/base runs/bf16 --host 0.0.0.0 --port 8090
    """
    from dragoman.insight.live_server import LiveServer
    from dragoman.paired_bootstrap import bootstrap

    server = LiveServer(runs, host, port, bootstrap)
    open_console().print(
        f"Open {server.address}  Ctrl-C stops the page, not the training.", highlight=False, soft_wrap=True
    )
    server.serve()
