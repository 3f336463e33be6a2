"""Run a torchft lighthouse, through which the workers of an elastic world find each other. Every machine runs one.

The lighthouse listens on the loopback address; a relay on the chosen address lets in those who know the secret, which
is read from the environment. Prints its port, and then a line when strangers were rejected.
"""

import os
import signal
import sys

from dragoman.authentication import Rejections
from dragoman.errors import DragomanError
from dragoman.relay import LIGHTHOUSE, LOOPBACK, RelayServer
from dragoman.worker_environment import SECRET

HEARTBEAT_MS = 1_000
"""A worker without a heartbeat for this long is no longer counted."""
JOIN_MS = 20_000
"""How long a quorum waits for a worker that is alive and has not asked for it: it may be busy with a large step."""
TICK_MS = 20


POLL_S = 1


def serve(address: str, port: int) -> None:
    """Serve until this process is ended."""
    try:
        from torchft.coordination import LighthouseServer
    except ImportError:
        raise DragomanError("Elastic training needs torchft: install dragoman[elastic] on all machines.") from None
    server = LighthouseServer(
        bind=f"{LOOPBACK}:0",
        min_replicas=1,
        join_timeout_ms=JOIN_MS,
        quorum_tick_ms=TICK_MS,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )
    rejections = Rejections()
    own_port = int(server.address().rpartition(":")[2])
    relay = RelayServer(address, port, os.environ[SECRET], LIGHTHOUSE, own_port, rejections)
    print(relay.port, flush=True)
    while signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, POLL_S) is None:
        if summary := rejections.take():
            print(summary, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
