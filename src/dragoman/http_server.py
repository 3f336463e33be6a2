"""The HTTP server of all pages: uvicorn, with limits for slow clients and idle connections, which it does not have."""

import asyncio
import logging
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
"""Open connections. Beyond it, those that have been waiting for their clients the longest are closed."""
KEEP_ALIVE_S = 5
READ_TIMEOUT_S = 10.0
"""Time for a client to send a request, and to take `MIN_TAKEN_BYTES` of a response."""
MIN_TAKEN_BYTES = 40_000
CHECKS_PER_TIMEOUT = 10
MAX_SMALL_CHUNKS = 1000
MIN_CHUNK_BYTES = 64
"""Least mean size of the chunks of a body, after the first ones: each takes as long to parse as kilobytes in one."""
SEND_BUFFER_BYTES = 1 << 16
"""Buffer of the operating system. It asks for more only when a third is empty: in a large one, progress is not seen."""


def make_server(
    app: ASGIApp,
    *,
    shutdown_grace_s: int,
    has_lifespan: bool = False,
    read_timeout_s: float = READ_TIMEOUT_S,
    max_connections: int = MAX_CONNECTIONS,
) -> uvicorn.Server:
    """A server that stops on SIGTERM or Ctrl-C, and then gives requests in progress some time to finish."""
    # Clients must not fill the log: lower levels report malformed requests, and writes to those that have disconnected.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app,
        http=_make_protocol(ConnectionLimits(read_timeout_s, max_connections)),
        ws="none",
        lifespan="on" if has_lifespan else "off",
        log_level="error",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=shutdown_grace_s,
        server_header=False,
    )
    return uvicorn.Server(config)


def _make_protocol(limits: "ConnectionLimits") -> type[H11Protocol]:
    class LimitedProtocol(BoundedProtocol):
        connection_limits = limits

    return LimitedProtocol


class ConnectionLimits:
    """The limits, and the open connections."""

    def __init__(self, read_timeout_s: float, max_connections: int) -> None:
        self.read_timeout_s = read_timeout_s
        self.max_connections = max_connections
        self.open: set[BoundedProtocol] = set()
        self.waiting: dict[BoundedProtocol, None] = {}
        """Connections without a complete request, the longest waiting first."""


class ChunkCheckingConnection(h11.Connection):
    """The HTTP parser, which refuses bodies of very many small chunks."""

    _chunks = 0
    _body_bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._body_bytes += len(event.data)
            if self._chunks > MAX_SMALL_CHUNKS and self._body_bytes < MIN_CHUNK_BYTES * self._chunks:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event

    def start_next_cycle(self) -> None:
        super().start_next_cycle()
        self._chunks = self._body_bytes = 0


class BoundedProtocol(H11Protocol):
    """A connection that is closed if its client is too slow in sending a request or in taking a response."""

    connection_limits: ConnectionLimits
    _waiting_since_s = 0.0
    _unsent_bytes = 0
    """Bytes of responses that the client had not taken when it last made progress."""
    _unsent_since_s = 0.0
    _check: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = ChunkCheckingConnection(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        limits = self.connection_limits
        limits.open.add(self)
        self._wait_for_client()
        self._schedule_check()
        # Not this one, if all others have requests in progress: their number has limits of its own.
        while len(limits.open) > limits.max_connections and (longest_waiting := next(iter(limits.waiting))) is not self:
            longest_waiting._forget()  # The transport reports the end of the connection later.
            longest_waiting.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body:
            self.connection_limits.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        self._wait_for_client()
        super().on_response_complete()

    def resume_writing(self) -> None:
        self._unsent_bytes = 0  # The client has taken most of what was unsent.
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # The malformed bytes follow a response that has been started already.
            self.transport.close()

    def _wait_for_client(self) -> None:
        if self in self.connection_limits.open:
            self._waiting_since_s = self.loop.time()
            self.connection_limits.waiting.pop(self, None)
            self.connection_limits.waiting[self] = None

    def _forget(self) -> None:
        self.connection_limits.open.discard(self)
        self.connection_limits.waiting.pop(self, None)

    def _schedule_check(self) -> None:
        interval_s = self.connection_limits.read_timeout_s / CHECKS_PER_TIMEOUT
        self._check = self.loop.call_later(interval_s, self._abort_if_slow)

    def _abort_if_slow(self) -> None:
        now_at_s = self.loop.time()
        unsent_bytes = self.transport.get_write_buffer_size()
        has_progress = unsent_bytes <= self._unsent_bytes - MIN_TAKEN_BYTES
        if not unsent_bytes or not self._unsent_bytes or has_progress:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_at_s
        if unsent_bytes:
            elapsed_s = now_at_s - self._unsent_since_s
        else:
            has_request = self.cycle is not None and not self.cycle.response_complete  # It has its own timeout.
            elapsed_s = 0.0 if has_request else now_at_s - self._waiting_since_s
        if elapsed_s > self.connection_limits.read_timeout_s:
            self.transport.abort()
        else:
            self._schedule_check()
