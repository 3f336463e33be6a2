"""Synchronisation of whole training states: a worker that is behind takes over the state of the one furthest ahead.

After every change of the world the workers compare their progress. Where all are at the same step of the same history,
nothing is sent. Otherwise the worker that is furthest ahead broadcasts its whole state: to a newly started worker, to
one that missed the last step, and to one that continued alone during a network partition.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster

TensorFiles = Mapping[str, Mapping[str, Tensor]]
"""Named tensors, in named groups."""


@dataclass(frozen=True)
class ReplicaProgress:
    """How far a worker has come. Later fields decide between equal earlier ones."""

    step: int
    """-1 for a worker without any state."""
    step_complete: bool
    """True if the work due after the step, such as an evaluation, is done too."""
    history: str
    """A hash of everything that led here: equal for workers that were together in every world so far."""


def compare_progress(cluster: Cluster, own: ReplicaProgress) -> tuple[int, list[ReplicaProgress], str]:
    """The rank that is furthest ahead, every worker's progress, and the hash of the history from here on."""
    progress = [ReplicaProgress(*each) for each in cluster.all_gather_json(astuple(own))]
    furthest = max(range(len(progress)), key=lambda rank: (progress[rank].step, progress[rank].step_complete, -rank))
    lineage = json.dumps([[member.name for member in cluster.members], [astuple(each) for each in progress]])
    return furthest, progress, hashlib.sha256(lineage.encode()).hexdigest()[:16]


def broadcast_state(
    cluster: Cluster, source: int, header: Any = None, tensors: TensorFiles | None = None
) -> tuple[Any, dict[str, dict[str, Tensor]]]:
    """The JSON header and the tensors of rank `source`, for every worker. Only that rank passes them in."""
    shapes = None if tensors is None else _shapes(tensors)
    header, shapes = cluster.all_gather_json([header, shapes])[source]
    received: dict[str, dict[str, Tensor]] = {file: {} for file in shapes}
    for file, described in shapes.items():
        for name, shape, dtype in described:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=cluster.device)
            if tensors is not None:
                tensor.copy_(tensors[file][name])
            cluster.broadcast(tensor, source)
            received[file][name] = tensor
    return header, received


def _shapes(tensors: TensorFiles) -> dict[str, list[tuple[str, list[int], str]]]:
    return {
        file: [(name, list(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in named.items()]
        for file, named in tensors.items()
    }
