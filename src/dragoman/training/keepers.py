"""Which workers write checkpoints: one on each of two machines, so that no single loss takes the newest one along.

All workers have the same state, so that a second copy costs no transfer. Machines that share a file system need only
one writer, and one machine alone has no other to write on.
"""

import uuid
from pathlib import Path

from dragoman.training.cluster import Cluster

COPIES = 2


def find_keepers(cluster: Cluster, folder: Path) -> frozenset[int]:
    """The ranks that write into `folder`: all workers call this together."""
    mark = folder / f".seen-{uuid.uuid4().hex}"
    if cluster.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    shown = cluster.share(mark.name)
    # Looking into the folder, not only at the name: a network file system may remember that it was not there.
    shares_disk = folder.exists() and shown in {path.name for path in folder.iterdir()}
    sees = cluster.gather(shares_disk)
    if cluster.is_first:
        mark.unlink()
    keepers, machines = [0], {cluster.members[0].host}
    for rank, member in enumerate(cluster.members):
        if member.host not in machines and not sees[rank] and len(keepers) < COPIES:
            keepers.append(rank)
            machines.add(member.host)
    return frozenset(keepers)
