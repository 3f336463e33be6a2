"""Which workers share a disk, and so who writes what.

Machines with a common file system have one run folder, the others have one each. Checkpoints are written by one worker
on each of two machines, so that no single loss takes the newest one along: all workers have the same state, and a
second copy costs no transfer.
"""

import contextlib
import uuid
from collections.abc import Sequence
from pathlib import Path

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.process_group import Member

COPIES = 2


def find_shared_storage(cluster: Cluster, folder: Path) -> list[int]:
    """For each rank the lowest one that writes into the same folder. All workers call this together."""
    mark = folder / f".seen-{uuid.uuid4().hex}"
    with contextlib.suppress(OSError):  # A full disk is nobody else's.
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    marks = cluster.gather(mark.name)
    # Looking into the folder, not only at the names: a network file system may remember that they were not there.
    seen = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    disks = cluster.gather(next((rank for rank, name in enumerate(marks) if name in seen), cluster.rank))
    with contextlib.suppress(OSError):
        mark.unlink()
    return disks


def choose_checkpoint_writers(disks: Sequence[int], members: Sequence[Member]) -> frozenset[int]:
    """The ranks that write checkpoints: the first, and one on another machine with another disk, if there is any."""
    keepers, machines = [0], {members[0].host}
    for rank, member in enumerate(members):
        if disks[rank] == rank and member.host not in machines and len(keepers) < COPIES:
            keepers.append(rank)
            machines.add(member.host)
    return frozenset(keepers)
