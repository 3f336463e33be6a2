"""The live page: a small server that tells browsers what is new in the logs of runs."""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from rich.console import Console
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from dragoman.insight.page import render, to_script_json
from dragoman.insight.run_history import Logs
from dragoman.insight.run_summary import digest
from dragoman.ports import bind_socket, url_to_open

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOOK_S = 1.0
"""How often the logs are looked at."""
GRACE_S = 5
"""For pages that are being read when the server is told to stop."""
QUIET_S = 15.0
"""How long a browser may hear nothing: a run that falls silent must be seen to do so."""


class Watch:
    """Runs that are watched, by any number of browsers."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._logs = [Logs(run) for run in runs]
        self._lock = threading.Lock()
        self._edition = 0
        self.refresh()
        self.digests()  # A folder that has not begun is told at once, and not to each browser.

    def refresh(self) -> int:
        """Read on. Gives a number that grows whenever something happened: each browser has its own place in it."""
        with self._lock:
            found = [logs.refresh() for logs in self._logs]
            self._edition += any(found)
            return self._edition

    def digests(self) -> list[dict[str, Any]]:
        with self._lock:
            return [digest(logs.story(), time.time()) for logs in self._logs]


def make_app(watch: Watch, token: str | None, is_ending: Callable[[], bool] = lambda: False) -> Starlette:
    """The page, and what is new in it. Where there is a token, nobody gets anything without it."""

    def refused(request: Request) -> Response | None:
        if token is None or secrets.compare_digest(request.query_params.get("token", ""), token):
            return None
        return PlainTextResponse("Give the token: open the address that `dragoman watch` printed.\n", 403)

    async def page(request: Request) -> Response:
        return refused(request) or HTMLResponse(
            await run_in_threadpool(lambda: render(watch.digests(), live=True)),
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )

    async def events(request: Request) -> Response:
        return refused(request) or StreamingResponse(
            _news(watch, is_ending), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    # A page elsewhere could have its own name lead to this machine, and read what no token protects.
    guards = [] if token else [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])]
    return Starlette(routes=[Route("/", page), Route("/events", events)], middleware=guards)


async def _news(watch: Watch, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    """The whole digest, whenever something happened: it is small, and whoever missed some is up to date again."""
    told, told_at_s = 0, time.monotonic()
    while not is_ending():
        edition = await run_in_threadpool(watch.refresh)
        if edition > told or time.monotonic() - told_at_s > QUIET_S:
            told, told_at_s = edition, time.monotonic()
            content = await run_in_threadpool(lambda: to_script_json({"runs": watch.digests()}))
            yield f"data: {content}\n\n"
        await asyncio.sleep(LOOK_S)


def serve(runs: Sequence[Path], host: str, port: int, console: Console) -> None:
    """Show runs until told to stop."""
    token = None if host in LOOPBACK else secrets.token_urlsafe(16)
    watch = Watch(runs)
    listening = bind_socket(host, port)
    listening.listen()  # Whoever opens the address as soon as it is printed waits, and is not refused.
    address = f"{url_to_open(host, listening.getsockname()[1])}/" + (f"?token={token}" if token else "")
    console.print(f"Open {address}  Ctrl-C ends the page, not the training.", highlight=False, soft_wrap=True)
    app = make_app(watch, token, lambda: server.should_exit)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", ws="none", server_header=False, timeout_graceful_shutdown=GRACE_S)
    )
    server.run(sockets=[listening])
