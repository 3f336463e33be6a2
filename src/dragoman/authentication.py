"""Proof that the other end of a connection belongs to the same launch, before anything it sends is read.

Each launch makes a random secret, which its machines receive over ssh. A connection starts with a challenge from both
sides, which only the secret can answer; datagrams carry a signature. What strangers send is counted and dropped.
"""

import contextlib
import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

PROOF_S = 5.0
"""Time for the other end to prove that it knows the secret."""
MAX_PENDING = 64
"""Connections that may be proving themselves at the same time. Another one closes the oldest of them."""
NONCE_BYTES = 32
SIGNATURE_BYTES = 32
REPORT_S = 60.0
"""Strangers are reported at most this often."""
MAX_SOURCES = 1000
"""Addresses of strangers that are counted one by one."""
_ACCEPT_RETRY_S = 0.1


def new_secret() -> str:
    return secrets.token_hex(32)


def sign(secret: str, *parts: bytes) -> bytes:
    """Signature of several parts. Each counts with its length, so that no other parts give the same bytes."""
    mac = hmac.new(secret.encode(), digestmod=hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)
    return mac.digest()


def is_signed(secret: str, signature: bytes, *parts: bytes) -> bool:
    return hmac.compare_digest(signature, sign(secret, *parts))


@dataclass(frozen=True)
class RejectionSummary:
    """Messages and connections of strangers since the last report."""

    count: int
    sources: tuple[str, ...]
    """Addresses that sent most of them."""

    def __str__(self) -> str:
        messages = "1 message or connection" if self.count == 1 else f"{self.count:,} messages or connections"
        return f"Rejected {messages} without the secret of this launch, from {', '.join(self.sources)}"


class Rejections:
    """Counts what strangers send, for a report once in a while."""

    def __init__(self) -> None:
        self._sources: Counter[str] = Counter()
        self._reported_at = -REPORT_S
        self._lock = threading.Lock()

    def add(self, source: str) -> None:
        with self._lock:
            known = source in self._sources or len(self._sources) < MAX_SOURCES
            self._sources[source if known else "other addresses"] += 1

    def take(self) -> RejectionSummary | None:
        """The summary since the last one; None if there is nothing to report, or not yet."""
        if not self._sources or time.monotonic() - self._reported_at < REPORT_S:
            return None
        with self._lock:
            sources, self._sources = self._sources, Counter()
        self._reported_at = time.monotonic()
        return RejectionSummary(sources.total(), tuple(source for source, _ in sources.most_common(3)))


def connect(address: str, port: int, secret: str, purpose: str, timeout_s: float) -> socket.socket:
    """Connect to an authenticated server of the same launch. Raises OSError if it is not there, or is a stranger."""
    connection = socket.create_connection((address, port), timeout=timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.monotonic() + timeout_s
        nonce = secrets.token_bytes(NONCE_BYTES)
        connection.sendall(nonce)
        challenge = _receive(connection, NONCE_BYTES, deadline)
        proof = _receive(connection, SIGNATURE_BYTES, deadline)
        if not is_signed(secret, proof, b"server", purpose.encode(), nonce, challenge):
            raise ConnectionRefusedError("another program answers there, not this launch")
        connection.sendall(sign(secret, b"client", purpose.encode(), nonce, challenge))
        connection.settimeout(None)
    except OSError:
        connection.close()
        raise
    return connection


class AuthenticatedServer:
    """Listens on one address, and serves only clients that know the secret. One thread for each connection."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        purpose: str,
        serve: Callable[[socket.socket], None],
        rejections: Rejections,
    ) -> None:
        """`purpose` tells servers of a launch apart. An empty address stands for all addresses."""
        every_address = not address and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if every_address or ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, port), family=family, backlog=128, dualstack_ipv6=every_address)
        self.port: int = self._listener.getsockname()[1]
        self._secret, self._purpose = secret, purpose.encode()
        self._serve = serve
        self._rejections = rejections
        self._pending: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, name=f"{purpose} server", daemon=True).start()

    def close(self) -> None:
        """Stop listening. Connections that are being served continue."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # Wakes the thread that waits for connections.
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, source = self._listener.accept()
            except OSError:  # Closed, or strangers have used up the file descriptors for a moment.
                time.sleep(_ACCEPT_RETRY_S)
                continue
            with self._lock:
                self._pending[connection] = None
                if len(self._pending) > MAX_PENDING:
                    with contextlib.suppress(OSError):
                        next(iter(self._pending)).shutdown(socket.SHUT_RDWR)
            threading.Thread(target=self._admit, args=(connection, str(source[0])), daemon=True).start()

    def _admit(self, connection: socket.socket, source: str) -> None:
        with connection, contextlib.suppress(OSError):
            try:
                proven = self._prove(connection)
            except OSError:
                proven = False
            finally:
                with self._lock:
                    del self._pending[connection]
            if proven:
                self._serve(connection)
            else:
                self._rejections.add(source)

    def _prove(self, connection: socket.socket) -> bool:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline = time.monotonic() + PROOF_S
        nonce = _receive(connection, NONCE_BYTES, deadline)
        challenge = secrets.token_bytes(NONCE_BYTES)
        connection.sendall(challenge + sign(self._secret, b"server", self._purpose, nonce, challenge))
        proof = _receive(connection, SIGNATURE_BYTES, deadline)
        connection.settimeout(None)
        return is_signed(self._secret, proof, b"client", self._purpose, nonce, challenge)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly so many bytes, before a deadline."""
    received = b""
    while len(received) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(count - len(received))
        if not part or time.monotonic() > deadline:
            raise ConnectionError("the other end closed the connection")
        received += part
    return received
