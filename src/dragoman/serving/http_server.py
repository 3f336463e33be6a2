"""The uvicorn server: timeouts for silent clients, and a graceful shutdown."""

import asyncio
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
"""Open connections, including idle ones."""
KEEP_ALIVE_S = 5
SHUTDOWN_GRACE_S = 15
"""Time for requests in progress to finish after the server is asked to stop."""


def run(app: ASGIApp, listener: socket.socket, *, read_timeout_s: float) -> None:
    """Serve the application until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        app,
        http=make_protocol(read_timeout_s),
        ws="none",
        lifespan="on",
        log_level="warning",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        server_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


def make_protocol(read_timeout_s: float) -> type[H11Protocol]:
    """Uvicorn's HTTP protocol, with a timeout for new connections that send no request; uvicorn itself has none."""

    class TimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(read_timeout_s, self._close_if_silent)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _close_if_silent(self) -> None:
            if self.scope is None:
                self.transport.close()

    return TimeoutProtocol
