"""`dragoman serve`: the translation server."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    open_console,
)
from dragoman.errors import DragomanError


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(help="Exports, runs or checkpoints, of any directions.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is reached from here alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765,
    threads: Annotated[int, typer.Option(min=0, max=256, help="Cores for a batch; 0 leaves it to CTranslate2.")] = 0,
    keys: Annotated[Path | None, typer.Option(help="File of hashed API keys; without it none is asked for.")] = None,
    new_key: Annotated[
        str | None, typer.Option("--new-key", metavar="NAME", help="Add a key to --keys, show it once, and leave.")
    ] = None,
    max_characters: Annotated[int, typer.Option(min=1, max=10**7, help="Longest text of a request.")] = 20_000,
    max_requests: Annotated[int, typer.Option(min=1, max=10_000, help="Requests under way at once.")] = 64,
    requests_per_minute: Annotated[int, typer.Option(min=0, help="Of one client; 0 is no limit.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request may take.")] = 30.0,
) -> None:
    """Serve models to people and programs: a page to type into, and LibreTranslate's HTTP API.

    **Examples**

        dragoman serve models/en-de models/de-en

        dragoman serve --keys keys.txt --new-key alice

        dragoman serve models/en-de --host 0.0.0.0 --keys keys.txt --requests-per-minute 120
    """
    from dragoman.serving.limits import Limits, make_key

    if new_key is not None:
        if keys is None:
            raise DragomanError("--new-key needs the file to add it to: give --keys FILE.")
        typer.echo(make_key(keys, new_key))
        return
    if not models:
        raise DragomanError("serve needs a model: for example `dragoman serve runs/demo/run`.")
    from dragoman.serving.http_server import run

    limits = Limits(
        max_characters=max_characters,
        max_requests=max_requests,
        requests_per_minute=requests_per_minute,
        timeout_s=timeout,
    )
    run(models, host=host, port=port, threads=threads, limits=limits, keys=keys, console=open_console(stderr=True))
