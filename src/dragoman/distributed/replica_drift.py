"""Drift between replicas: workers whose weights should be equal compare a checksum of them.

Replicas that apply the same gradients to the same weights stay equal bit for bit. A faulty memory, or devices that
round differently, make them drift apart, and every later gradient is a mean over different models.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.events import ReplicasDrifted


def find_drift(cluster: Cluster, weights: Sequence[Tensor], step: int) -> ReplicasDrifted | None:
    """Compare float32 weights over all workers, which call this together; None if they are equal bit for bit."""
    if cluster.world_size == 1:
        return None
    checksums = [int(each) for each in cluster.all_gather_async(checksum(weights).reshape(1))()]
    commonest, count = Counter(checksums).most_common(1)[0]
    if count == len(checksums):
        return None
    has_majority = 2 * count > len(checksums)
    drifted = [
        str(member)
        for member, each in zip(cluster.members, checksums, strict=True)
        if not has_majority or each != commonest
    ]
    return ReplicasDrifted(step=step, workers=drifted, has_majority=has_majority)


@torch.no_grad()
def checksum(tensors: Sequence[Tensor]) -> Tensor:
    """A sum over the bits of all values, on their device. It changes with every single value."""
    sums = torch.stack([tensor.detach().contiguous().view(torch.int32).sum(dtype=torch.int64) for tensor in tensors])
    return (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()
