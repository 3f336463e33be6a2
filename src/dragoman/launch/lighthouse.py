"""Run a torchft lighthouse, through which the workers of an elastic world find each other. Every machine runs one."""

import signal
import sys

from dragoman.errors import DragomanError

HEARTBEAT_MS = 1_000
"""A worker without a heartbeat for this long is no longer counted."""
JOIN_MS = 20_000
"""How long a quorum waits for a worker that is alive and has not asked for it: it may be busy with a large step."""
TICK_MS = 20


def serve(port: int) -> None:
    """Serve until this process is ended."""
    try:
        from torchft.coordination import LighthouseServer
    except ImportError:
        raise DragomanError("Elastic training needs torchft: install dragoman[elastic] on all machines.") from None
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
    serve(int(sys.argv[1]))
