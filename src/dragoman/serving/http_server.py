"""`dragoman serve`: models made ready, a socket that waits for no one for ever, and a graceful end."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from rich.console import Console
from uvicorn.protocols.http.h11_impl import H11Protocol

from dragoman.decoding.ctranslate2_translator import is_exported
from dragoman.errors import DragomanError
from dragoman.ports import bind, shown
from dragoman.serving.app import make_app
from dragoman.serving.limits import Keys, Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.translation_service import Service

LOOPBACK = "127.0.0.1"
CONNECTIONS = 512
"""Open at once, idle ones among them."""
GRACE_S = 15
"""For requests that are under way when the server is told to stop."""


def run(
    models: Sequence[Path], *, host: str, port: int, threads: int, limits: Limits, keys: Path | None, console: Console
) -> None:
    """Serve until told to stop."""
    known_keys = None if keys is None else Keys.read(keys)
    if host != LOOPBACK and known_keys is None and not limits.requests_per_minute:
        console.print(
            f"Whoever reaches {host} may translate as much as they like: give --keys or --requests-per-minute.",
            style="yellow",
        )
    metrics = Metrics()
    listening = bind(host, port)
    with tempfile.TemporaryDirectory(prefix="dragoman-") as drafts:
        folders = [_ready(model, Path(drafts), console) for model in models]
        service = Service(folders, threads=threads, on_batch=metrics.note_batch)
    for model in service.models:
        console.print(f"{model.name}: {model.source} to {model.target}", highlight=False)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(service, limits, known_keys, metrics),
            http=impatient(limits.read_timeout_s),
            ws="none",
            lifespan="on",
            log_level="warning",
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
    )
    address = shown(host, port)
    console.print(f"Open {address} to type, {address}/docs for the API. Ctrl-C stops.", soft_wrap=True)
    server.run(sockets=[listening])


def _ready(model: Path, drafts: Path, console: Console) -> Path:
    """A folder for CTranslate2: the given one, or an export made of the run or checkpoint that it is.

    Made by another process, so that torch does not stay in the memory of this one.
    """
    if is_exported(model):
        return model
    if not model.exists():
        raise DragomanError(f"There is no model {model}: check the path.")
    console.print(f"Exporting {model} to CTranslate2, int8. `dragoman export` saves doing so each time.", style="dim")
    out = drafts / f"{len(list(drafts.iterdir()))}" / model.resolve().name
    command = [sys.executable, "-m", "dragoman", "export", str(model), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DragomanError(" ".join(done.stderr.removeprefix("error:").split()) or f"{model} cannot be exported.")
    return out


def impatient(read_timeout_s: float) -> type[H11Protocol]:
    """uvicorn's protocol, but a connection that begins no request in time is closed: uvicorn would wait for ever."""

    class Impatient(H11Protocol):
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._patience = self.loop.call_later(read_timeout_s, self._close_if_silent)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._patience is not None:
                self._patience.cancel()
            super().connection_lost(exc)

        def _close_if_silent(self) -> None:
            if self.scope is None:
                self.transport.close()

    return Impatient
