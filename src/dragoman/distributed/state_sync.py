"""How a worker that is behind takes over the state of one that is ahead.

After every change of the world the workers compare how far each has come. Where all stand at the same place of the
same history, nothing moves. Otherwise the furthest hands its whole state to everyone: to one that has just been
started, to one that missed the last step, and to one that went on alone while the network was cut.
"""

import hashlib
import json
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.training.checkpoint import Snapshot


@dataclass(frozen=True)
class ReplicaProgress:
    """How far a worker has come. Later fields decide between equal earlier ones."""

    step: int
    settled: bool
    """Whether what was due after the step, such as an evaluation, is done too."""
    history: str
    """A name of all that led here: the same for workers who were together in every world so far."""


def compare(cluster: Cluster, mine: ReplicaProgress) -> tuple[int, list[ReplicaProgress], str]:
    """The rank of the furthest worker, how far each has come, and the name of the history from here on."""
    known = cluster.gather(mine)
    furthest = max(range(len(known)), key=lambda rank: (known[rank].step, known[rank].settled, -rank))
    said = json.dumps([[member.name for member in cluster.members], [astuple(progress) for progress in known]])
    return furthest, known, hashlib.sha256(said.encode()).hexdigest()[:16]


def hand_over(cluster: Cluster, source: int, snapshot: Snapshot | None) -> Snapshot:
    """The snapshot of the worker of rank `source`, for everyone. Only that worker gives one."""
    header = cluster.gather(None if snapshot is None else (snapshot.state, _shapes(snapshot)))[source]
    assert header is not None
    state, shapes = header
    received: dict[str, dict[str, Tensor]] = {file: {} for file in shapes}
    for file, described in shapes.items():
        for name, shape, dtype in described:
            tensor = torch.empty(shape, dtype=dtype, device=cluster.device)
            if snapshot is not None:
                tensor.copy_(snapshot.files()[file][name])
            cluster.broadcast(tensor, source)
            received[file][name] = tensor
    return Snapshot.from_files(state, received)


def _shapes(snapshot: Snapshot) -> dict[str, list[tuple[str, tuple[int, ...], torch.dtype]]]:
    return {
        file: [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        for file, tensors in snapshot.files().items()
    }
