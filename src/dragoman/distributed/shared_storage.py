"""Shared storage: the workers that write to the same file system, and the ones among them that write checkpoints.

Machines with a shared file system have one run folder, the others have one each. Checkpoints are written by one worker
on each of two machines, so that the loss of one machine does not lose the newest checkpoint. All workers have the same
state, so a second copy needs no transfer.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import Member
from dragoman.files import draft_path

COPIES = 2


def find_shared_storage(cluster: Cluster, folder: Path) -> list[int]:
    """For each rank, the lowest rank that writes to the same folder. All workers call this together."""
    marker = draft_path(folder / "seen")
    with contextlib.suppress(OSError):  # A full disk counts as not shared.
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    markers = cluster.all_gather_json(marker.name)
    # List the folder instead of testing names: a network file system may have cached that a name does not exist.
    seen = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    storage = cluster.all_gather_json(next((rank for rank, name in enumerate(markers) if name in seen), cluster.rank))
    with contextlib.suppress(OSError):
        marker.unlink()
    return storage


def choose_checkpoint_writers(storage: Sequence[int], members: Sequence[Member]) -> frozenset[int]:
    """The ranks that write checkpoints: rank 0, and one on another machine with storage of its own, if there is any."""
    writers, machines = [0], {members[0].host}
    for rank, member in enumerate(members):
        if storage[rank] == rank and member.host not in machines and len(writers) < COPIES:
            writers.append(rank)
            machines.add(member.host)
    return frozenset(writers)
