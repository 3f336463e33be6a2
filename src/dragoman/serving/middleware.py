"""ASGI middleware: concurrency limit, request timeout, metrics and security headers of every request."""

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.serving.error_responses import RETRY_AFTER_S, ApiError
from dragoman.serving.limits import Limits
from dragoman.serving.metrics import Metrics

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class ServerMiddleware:
    """Applies the concurrency limit and the timeout, records metrics, and adds security headers."""

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
        self._in_progress = 0
        self._received = 0  # Requests in progress that have arrived completely.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Unknown paths share one label: clients must not be able to create metrics.
        path = scope["path"] if scope["path"] in self._paths else "other"
        response = _ResponseSender(send)
        started_at_s = time.perf_counter()
        has_arrived = False

        async def receive_within_limit() -> Message:
            """Receive part of the body. Slow clients do not count against the limit until they have sent all of it."""
            nonlocal has_arrived
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body") and not has_arrived:
                if self._received >= self._limits.max_requests:
                    raise ApiError(503, "Too many requests in progress: try again in a moment.", RETRY_AFTER_S)
                self._received += 1
                has_arrived = True
            return message

        self._in_progress += 1
        self._metrics.requests_in_progress.set(self._in_progress)
        try:
            await self._serve(scope, receive_within_limit, response, path)
        finally:
            self._received -= has_arrived
            self._in_progress -= 1
            self._metrics.requests_in_progress.set(self._in_progress)
            self._metrics.requests.labels(path, str(response.status)).inc()
            self._metrics.request_seconds.labels(path).observe(time.perf_counter() - started_at_s)

    async def _serve(self, scope: Scope, receive: Receive, response: "_ResponseSender", path: str) -> None:
        timeout_s = self._timeout_s(path)
        try:
            async with asyncio.timeout(timeout_s):
                await self._app(scope, receive, response)
        except TimeoutError:
            if response.status:  # Already started. Leaving it unfinished shows the client that it is incomplete.
                return
            timed_out = ApiError(
                503, f"The request took longer than {timeout_s:g} s: send less text, or try again later.", RETRY_AFTER_S
            )
            await timed_out.response()(scope, receive, response)


class _ResponseSender:
    """Sends a response with the security headers, and records its status code."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            security_headers = ((name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
            message = {**message, "headers": [*message["headers"], *security_headers]}
        await self._send(message)
