"""The server put together: places, headers, limits, and the files of the page."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.serving.api import RETRY_AFTER_S, Api
from dragoman.serving.limits import Keys, Limits
from dragoman.serving.metrics import Metrics
from dragoman.serving.openapi import describe, describe_as_html
from dragoman.serving.requests import RefusedError
from dragoman.serving.translation_service import Service

PAGE_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, limits: Limits, keys: Keys | None, metrics: Metrics) -> ASGIApp:
    """The ASGI application. It closes the service when the server stops."""
    api = Api(service, limits, keys, metrics)
    calls: dict[str, tuple[str, Handler]] = {
        "/translate": ("POST", api.translate),
        "/stream": ("POST", api.stream),
        "/file": ("POST", api.file),
        "/detect": ("POST", api.detect),
        "/languages": ("GET", api.languages),
        "/models": ("GET", api.models),
        "/frontend/settings": ("GET", api.settings),
        "/health": ("GET", api.health),
        "/metrics": ("GET", api.metrics),
    }
    description = describe(limits, service.models)
    pages = {
        "/openapi.json": JSONResponse(description),
        "/docs": Response(describe_as_html(description), media_type="text/html; charset=utf-8"),
        **{f"/{'' if name == 'index.html' else name}": _page_file(name, kind) for name, kind in PAGE_FILES.items()},
    }

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    routes = [Route(path, handler, methods=[method]) for path, (method, handler) in calls.items()]
    routes += [Route(path, _always(response), methods=["GET"]) for path, response in pages.items()]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={RefusedError: _refuse, HTTPException: _refuse_http},
    )
    return Reception(app, limits, metrics, frozenset([*calls, *pages]), api.timeout_s)


def _page_file(name: str, kind: str) -> Response:
    """Read once, at the start: no request ever names a file."""
    content = resources.files("dragoman.serving").joinpath("page", name).read_bytes()
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _always(response: Response) -> Handler:
    async def answer(_: Request) -> Response:
        return response

    return answer


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    headers = {} if error.retry_after_s is None else {"retry-after": str(max(1, round(error.retry_after_s)))}
    return JSONResponse({"error": str(error)}, error.status, headers)


async def _refuse_http(request: Request, error: Exception) -> Response:
    """What starlette itself refuses: places that do not exist, and methods that do not fit."""
    assert isinstance(error, HTTPException)
    sentence = f"There is no {request.method} {request.url.path[:100]} here: /docs lists what there is."
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


class Reception:
    """Stands before everything: lets in as many as there is room for, keeps time, counts, and sets safe headers."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        paths: frozenset[str],
        timeout_s: Callable[[str], float],
    ) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics
        self._paths = paths
        self._timeout_s = timeout_s
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"
        answer = _ResponseStart(send)
        started_at_s = time.perf_counter()
        self._inside += 1
        self._metrics.under_way.set(self._inside)
        try:
            await self._serve(scope, receive, answer, path)
        finally:
            self._inside -= 1
            self._metrics.under_way.set(self._inside)
            self._metrics.requests.labels(path, str(answer.status)).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - started_at_s)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_ResponseStart", path: str) -> None:
        # Those who ask after the server's health get an answer even when it has no room.
        if self._inside > self._limits.max_requests and path not in ("/health", "/metrics"):
            busy = RefusedError(503, "Too many requests are under way: try again in a moment.", RETRY_AFTER_S)
            await (await _refuse(Request(scope), busy))(scope, receive, answer)
            return
        timeout_s = self._timeout_s(path)
        try:
            async with asyncio.timeout(timeout_s):
                await self._app(scope, receive, answer)
        except TimeoutError:
            if answer.status:  # Half an answer is under way. Not ending it tells the client that it is not whole.
                return
            late = RefusedError(503, f"This took longer than {timeout_s:g} s: send less, or try later.", RETRY_AFTER_S)
            await (await _refuse(Request(scope), late))(scope, receive, answer)


class _ResponseStart:
    """Passes an answer on with the headers that all have, and notes its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {
                **message,
                "headers": [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())],
            }
        await self._send(message)
