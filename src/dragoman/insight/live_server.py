"""Server of the live page: sends browsers a new summary whenever the logs of the runs grow."""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from dragoman.host_header import HostHeaderMiddleware
from dragoman.http_server import make_server
from dragoman.insight.compared_run import SignificanceTest, name_runs
from dragoman.insight.page import render, to_script_json
from dragoman.insight.report_content import ReportContent, summarize_runs
from dragoman.insight.run_history import RunLogReader
from dragoman.insight.run_metrics import render_metrics
from dragoman.insight.synthesis_history import is_synthesis
from dragoman.insight.synthesis_summary import summarize_syntheses
from dragoman.listening_socket import bind_socket, url_to_open
from dragoman.run_folder import RunFolder

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
POLL_INTERVAL_S = 1.0
"""Interval between two looks at the logs."""
SHUTDOWN_GRACE_S = 5
"""Time for open requests to finish when the server stops."""
MAX_QUIET_S = 15.0
"""Longest time without a message to the browser, so that it shows a run that stopped responding."""


class WatchedRuns:
    """The runs of a live page, shared by all browsers."""

    def __init__(self, runs: Sequence[Path], test: SignificanceTest) -> None:
        self._runs, self._test = runs, test
        self._readers = [RunLogReader(run) for run in runs]
        self._lock = threading.Lock()
        self._version = 0
        self.refresh()
        self.content()  # Raises now, and not in each browser, if a run has not started.

    def refresh(self) -> int:
        """Read new events. Returns a version that grows whenever there were any."""
        with self._lock:
            found = [reader.read_new() for reader in self._readers]
            self._version += any(found)
            return self._version

    def content(self) -> ReportContent:
        with self._lock:
            return summarize_runs(self._runs, [reader.history() for reader in self._readers], time.time(), self._test)

    def metrics(self) -> bytes:
        """The latest metrics of all runs, for Prometheus."""
        self.refresh()
        with self._lock:
            histories = [reader.history() for reader in self._readers]
        names = name_runs(self._runs) if len(self._runs) > 1 else [history.name for history in histories]
        return render_metrics(dict(zip(names, histories, strict=True)), time.time())


class WatchedSyntheses:
    """The syntheses of a live page. Their logs are small: all is read again when one has grown."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.content()

    def refresh(self) -> int:
        return sum(RunFolder(path).events_of(0).stat().st_size for path in self._paths)

    def content(self) -> ReportContent:
        return {"runs": summarize_syntheses(self._paths, time.time()), "comparison": None}

    def metrics(self) -> bytes:
        """Lines done and left, for Prometheus."""
        lines = [
            f'dragoman_synthesis_{name}{{run="{run["run"]}"}} {run[key]}\n'
            for run in self.content()["runs"]
            for name, key in (("lines", "step"), ("total_lines", "total_steps"))
        ]
        return "".join(lines).encode()


Watched = WatchedRuns | WatchedSyntheses


class LiveServer:
    """Listens as soon as it is created. Outside of the loopback interface, requests need the token in its address."""

    def __init__(self, runs: Sequence[Path], host: str, port: int, test: SignificanceTest) -> None:
        token = None if host in LOOPBACK_HOSTS else secrets.token_urlsafe(16)
        watched = WatchedSyntheses(runs) if any(map(is_synthesis, runs)) else WatchedRuns(runs, test)
        self._socket = bind_socket(host, port)
        self._socket.listen()  # A browser that connects before `serve` waits instead of being refused.
        self.address = f"{url_to_open(host, self._socket.getsockname()[1])}/" + (f"?token={token}" if token else "")
        app = make_app(watched, token, [host, socket.gethostname()], lambda: self._server.should_exit)
        self._server = make_server(app, shutdown_grace_s=SHUTDOWN_GRACE_S)

    def serve(self) -> None:
        """Serve until the process is interrupted."""
        self._server.run(sockets=[self._socket])


def make_app(
    watched: Watched,
    token: str | None,
    host_names: Collection[str] = (),
    is_stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """The page, its event stream, and the metrics. If there is a token, every request must carry it."""

    def refuse(request: Request) -> Response | None:
        # As bytes: compare_digest raises an error for text that is not ASCII.
        if token is None or secrets.compare_digest(request.query_params.get("token", "").encode(), token.encode()):
            return None
        return PlainTextResponse("Token missing: open the address that `dragoman watch` printed.\n", 403)

    async def page(request: Request) -> Response:
        return refuse(request) or HTMLResponse(
            await run_in_threadpool(lambda: render(**watched.content(), live=True)),
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )

    async def events(request: Request) -> Response:
        return refuse(request) or StreamingResponse(
            stream_updates(watched, is_stopping),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def metrics(request: Request) -> Response:
        return refuse(request) or Response(await run_in_threadpool(watched.metrics), media_type=CONTENT_TYPE_LATEST)

    app = Starlette(routes=[Route("/", page), Route("/events", events), Route("/metrics", metrics)])
    # A foreign page that reaches this server under its own host name does not know the token.
    return app if token else HostHeaderMiddleware(app, host_names, _refuse_host)


def _refuse_host(name: str) -> Response:
    message = f"This server has another name than '{name[:100]}': open the address that `dragoman watch` printed, or"
    return PlainTextResponse(f"{message} start it with --host 0.0.0.0, which requires a token.\n", 403)


async def stream_updates(watched: Watched, is_stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Server-sent events. Each holds the complete summaries: they are small, and a browser may miss some."""
    sent_version, sent_at_s = 0, time.monotonic()
    while not is_stopping():
        version = await run_in_threadpool(watched.refresh)
        if version > sent_version or time.monotonic() - sent_at_s > MAX_QUIET_S:
            sent_version, sent_at_s = version, time.monotonic()
            content = await run_in_threadpool(lambda: to_script_json(watched.content()))
            yield f"data: {content}\n\n"
        await asyncio.sleep(POLL_INTERVAL_S)
