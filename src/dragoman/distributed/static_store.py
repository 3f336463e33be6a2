"""The store through which the workers of a static world find each other."""

import os
import socket

from torch._C._distributed_c10d import FileStore, Store, TCPStore
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from dragoman.authentication import Rejections, new_secret
from dragoman.relay import LOOPBACK, STORE, RelayClient, RelayServer
from dragoman.worker_environment import SECRET, STORE_FILE

START_S = 300.0
"""How long workers wait for the first one to start."""


def open_store(rank: int, world_size: int, rejections: Rejections) -> tuple[Store, RelayServer | RelayClient | None]:
    """The store of a world, and the relay to it, which must be kept as long.

    `dragoman train --workers` uses a file, `dragoman launch` a TCP store behind an authenticated relay. Worlds made by
    torchrun, mpirun and srun use the store of those tools, which trusts the network.
    """
    if STORE_FILE in os.environ:
        return FileStore(os.environ[STORE_FILE], world_size), None
    if SECRET not in os.environ:
        store, _, _ = next(rendezvous("env://", rank, world_size))
        # After a restart the store still holds the addresses of dead workers: use keys of this attempt only.
        return PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store), None
    secret, address, port = os.environ[SECRET], os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        own = serve_store()
        return own, RelayServer(address, port, secret, STORE, own.port, rejections)
    relay = RelayClient(address, port, secret, STORE)
    relay.wait_for_server(START_S)
    return TCPStore(LOOPBACK, relay.port, is_master=False), relay


def serve_store() -> TCPStore:
    """Serve a TCP store on the loopback address only: torch itself would listen on all addresses."""
    listener = socket.create_server((LOOPBACK, 0), backlog=1024)
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def share_secret(store: Store, rank: int) -> str:
    """A secret of rank 0 for all workers of a world that was made without one."""
    if rank == 0:
        store.set("secret", new_secret())
    return store.get("secret").decode()
