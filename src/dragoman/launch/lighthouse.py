"""A lighthouse of torchft, by which the workers of an elastic world find each other. Every machine keeps one."""

import signal
import sys

from dragoman.errors import DragomanError

HEARTBEAT_MS = 1_000
"""Without a sign of life for this long a worker is no longer counted."""
JOIN_MS = 20_000
"""How long the others wait for a worker that is alive and does not ask: it may be busy with a large step."""
TICK_MS = 20


def burn(port: int) -> None:
    """Burn until this process is ended."""
    try:
        from torchft.coordination import LighthouseServer
    except ImportError:
        raise DragomanError("An elastic world needs torchft: install dragoman[elastic] on all machines.") from None
    server = LighthouseServer(
        bind=f"[::]:{port}",
        min_replicas=1,
        join_timeout_ms=JOIN_MS,
        quorum_tick_ms=TICK_MS,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )
    print(server.address(), flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    burn(int(sys.argv[1]))
