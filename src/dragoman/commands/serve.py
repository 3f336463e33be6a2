"""`dragoman serve`: the translation server."""

import logging
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.glossary_option import parse_glossary
from dragoman.commands.typer_app import open_console
from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.glossary import GlossaryFile
    from dragoman.serving.limits import Limits

LOOPBACK = "127.0.0.1"
SWITCH_INTERVAL_S = 0.0005
"""Longest wait of the event loop for the GIL while a thread works on a text; it waits many times in each request."""
SHUTDOWN_GRACE_S = 15
"""Time for requests in progress to finish after the server is asked to stop."""

HostNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name under which browsers reach this server, such as that of a reverse proxy; may be repeated. "
        "localhost, this machine's name and IP addresses are always allowed; '*' allows every name.",
        show_default=False,
    ),
]
NewKeyName = Annotated[
    str | None,
    typer.Option(
        "--new-key",
        metavar="NAME",
        help="Add a key to the --keys file, print it once, and exit.",
        show_default=False,
    ),
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="Origin of web pages that may use the API from browsers, such as https://forum.example.org; may be "
        "repeated. '*' allows all pages, as LibreTranslate does. By default only the server's own page may.",
        show_default=False,
    ),
]
SuggestionFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder to store suggested translations in, one JSONL file per language pair, which `dragoman "
        "prepare` reads. Without it, suggestions are refused.",
        show_default=False,
    ),
]


Glossaries = Annotated[
    list[str] | None,
    typer.Option(
        "--glossary",
        metavar="[en-de=]FILE",
        help="Terms and their translations (TSV, or CSV by its name), with the direction if there are several models; "
        "may be repeated.",
        show_default=False,
    ),
]


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Exports, runs, checkpoints or folders of OPUS-MT, M2M100 or NLLB, for any language pairs.",
            show_default=False,
        ),
    ] = None,
    glossary: Glossaries = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default accepts connections from this machine only.")
    ] = LOOPBACK,
    allow_host: HostNames = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8765,
    threads: Annotated[int, typer.Option(min=0, max=256, help="CPU threads per batch; 0: CTranslate2 chooses.")] = 0,
    keys: Annotated[
        Path | None, typer.Option(help="File of hashed API keys. Without it, no key is required.", show_default=False)
    ] = None,
    new_key: NewKeyName = None,
    cors: Origins = None,
    suggestions: SuggestionFolder = None,
    max_characters: Annotated[int, typer.Option(min=1, max=10**7, help="Characters of text per request.")] = 20_000,
    max_requests: Annotated[int, typer.Option(min=1, max=10_000, help="Requests in progress at once.")] = 64,
    requests_per_minute: Annotated[int, typer.Option(min=0, help="Requests per client; 0: no limit.")] = 0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds per request; files get ten times as long.")] = 30.0,
) -> None:
    """Serve models: a web page for people, and LibreTranslate's HTTP API for programs.

    **Examples**

        dragoman serve models/en-de models/de-en

        dragoman serve fr-en=models/m2m100_418M models/opus-mt-en-de --glossary en-de=terms.tsv

        dragoman serve --keys keys.txt --new-key alice

        dragoman serve models/en-de --host 0.0.0.0 --keys keys.txt --requests-per-minute 120

        dragoman serve models/en-de --cors https://forum.example.org --suggestions corrections
    """
    if new_key is not None:
        from dragoman.serving.api_keys import create_api_key

        if keys is None:
            raise DragomanError("--new-key needs a key file: give --keys FILE.")
        typer.echo(create_api_key(keys, new_key))
        return
    if not models:
        raise DragomanError("serve needs a model: for example `dragoman serve runs/demo/run`.")
    from dragoman.serving.limits import Limits

    limits = Limits(
        max_characters=max_characters,
        max_requests=max_requests,
        requests_per_minute=requests_per_minute,
        timeout_s=timeout,
    )
    _run_server(
        models,
        limits,
        host,
        allow_host or [],
        port=port,
        threads=threads,
        key_file=keys,
        origins=_check_origins(cors or []),
        suggestion_folder=suggestions,
        glossaries=[parse_glossary(text, len(models)) for text in glossary or []],
    )


def _check_origins(origins: list[str]) -> list[str]:
    """Browsers compare origins letter by letter: one in another form would never match."""
    for origin in origins:
        if origin != "*" and not re.fullmatch(r"https?://[^/\s?#@]+", origin):
            raise DragomanError(
                f"--cors '{origin}' is not an origin: use a scheme and a host without a path, such as "
                "https://forum.example.org, or '*'."
            )
    return origins


def _run_server(
    models: list[Path],
    limits: "Limits",
    host: str,
    host_names: list[str],
    *,
    port: int,
    threads: int,
    key_file: Path | None,
    origins: list[str],
    suggestion_folder: Path | None,
    glossaries: "list[GlossaryFile]",
) -> None:
    from dragoman.http_server import make_server
    from dragoman.listening_socket import bind_socket, url_to_open
    from dragoman.serving.api_keys import ApiKeys
    from dragoman.serving.app import make_app
    from dragoman.serving.metrics import Metrics
    from dragoman.serving.model_loading import load_service
    from dragoman.serving.suggestions import SuggestionStore

    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # Clients must not fill the log with bad forms.
    console, notes = open_console(stderr=True), open_console(stderr=True, optional=True)
    keys = None if key_file is None else ApiKeys.read(key_file)
    suggestions = None if suggestion_folder is None else SuggestionStore(suggestion_folder)
    if host != LOOPBACK and keys is None and not limits.requests_per_minute:
        console.print(
            f"Anyone who can reach {host} can use this server without limit: set --keys or --requests-per-minute.",
            style="yellow",
        )

    def report_export(model: Path) -> None:
        message = f"Exporting {model} to CTranslate2 int8. Use `dragoman export` to do this only once."
        notes.print(message, style="dim", markup=False)

    metrics = Metrics()
    listener = bind_socket(host, port)
    service = load_service(
        models, threads=threads, on_batch=metrics.record_batch, on_export=report_export, glossaries=glossaries
    )
    for model in service.routes:
        via = "" if model.via is None else f", via {model.via}"
        notes.print(f"{model.name}: {model.source} to {model.target}{via}", highlight=False)
    url = url_to_open(host, port)
    notes.print(f"Translate at {url}. API documentation: {url}/docs. Press Ctrl-C to stop.", soft_wrap=True)
    names = [host, socket.gethostname(), *host_names]
    app = make_app(service, limits, keys, metrics, names, origins=origins, suggestions=suggestions)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    server = make_server(
        app, shutdown_grace_s=SHUTDOWN_GRACE_S, has_lifespan=True, read_timeout_s=limits.read_timeout_s
    )
    server.run(sockets=[listener])
