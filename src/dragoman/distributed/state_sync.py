"""State sync: a worker that is behind gets the training state of the one that is furthest ahead.

After every change of the world the workers compare their progress. Where all are at the same step of the same history,
nothing is sent. Otherwise the worker that is furthest ahead broadcasts its whole state. This serves a newly started
worker, one that missed the last step, and one that continued alone during a network partition. Workers that have taken
local steps when another was lost merge them first; those that had noticed the loss earlier follow the others before. So
does a worker that was late at a synchronisation merge its steps: the others have continued without it, but know from
where it started.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragoman.distributed.cluster import Cluster
from dragoman.distributed.exchange.interface import UnmergedSteps

TensorFiles = Mapping[str, Mapping[str, Tensor]]
"""Named tensors, in named groups."""
CHUNK_BYTES = 1 << 26
"""Tensors are sent together up to this size."""
ALIGNMENT = 16


class Origin(NamedTuple):
    """What local steps began from."""

    history: str
    step: int
    """In which all weights were synchronised."""
    fragments: int
    """Fragments of the weights that were averaged since: the steps before are in these."""


@dataclass(frozen=True)
class ReplicaProgress:
    """The progress of a worker: compared by step, by `step_complete`, by whether its steps are merged, by fragments."""

    step: int
    """-1 for a worker without any state."""
    step_complete: bool
    """True if the work due after the step, such as an evaluation, is done too."""
    history: str
    """A hash of all earlier states: equal for workers that were together in every world so far."""
    unmerged: UnmergedSteps = field(default_factory=UnmergedSteps)
    absent: Mapping[str, Origin] = field(default_factory=dict)
    """Workers whose local steps are not in this state, by name."""
    shares: Sequence[float] = field(default=(), compare=False)
    """Of the workers in the world that this one comes from, by rank."""

    @classmethod
    def from_json(cls, content: Sequence[Any]) -> "ReplicaProgress":
        step, step_complete, history, unmerged, absent, shares = content
        origins = {name: Origin(*origin) for name, origin in absent.items()}
        return cls(step, step_complete, history, UnmergedSteps(*unmerged), origins, shares)

    @property
    def order(self) -> tuple[int, bool, bool, int]:
        return self.step, self.step_complete, not self.unmerged.steps, self.unmerged.fragments

    @property
    def origin(self) -> Origin:
        return Origin(self.history, self.step - self.unmerged.since, self.unmerged.fragments)

    def is_behind(self, ahead: "ReplicaProgress") -> bool:
        """True if the one ahead has taken more steps or averaged more fragments since the same synchronisation."""
        is_common = self.origin[:2] == ahead.origin[:2] and self.unmerged.steps > 0 and ahead.unmerged.steps > 0
        return is_common and (self.step, self.origin) != (ahead.step, ahead.origin)

    def merges_with(self, other: "ReplicaProgress") -> bool:
        """True if both have local steps since the same synchronisation, and none is behind."""
        is_common = (self.step, self.origin) == (other.step, other.origin)
        return is_common and self.unmerged.steps > 0 and other.unmerged.steps > 0

    def merged_with(self, other: "ReplicaProgress") -> "ReplicaProgress":
        """The progress after the local steps were merged with those of another worker."""
        return replace(self, unmerged=UnmergedSteps()) if self.merges_with(other) else self


def compare_progress(cluster: Cluster, own: ReplicaProgress) -> tuple[int, list[ReplicaProgress], str]:
    """The rank that is furthest ahead, every worker's progress, and the new hash of the common history."""
    progress = [ReplicaProgress.from_json(each) for each in cluster.all_gather_json(astuple(own))]
    furthest = max(range(len(progress)), key=lambda rank: (progress[rank].order, -rank))
    content = json.dumps([[member.name for member in cluster.members], [astuple(each) for each in progress]])
    return furthest, progress, hashlib.sha256(content.encode()).hexdigest()[:16]


def find_late(names: Sequence[str], progress: Sequence[ReplicaProgress], ahead: ReplicaProgress) -> list[int]:
    """Ranks of workers with local steps that the one ahead has continued without. `names` are those of all ranks.

    A worker whose steps may have been averaged by the others, before it lost them, is not among these.
    """
    return [
        rank
        for rank, (name, each) in enumerate(zip(names, progress, strict=True))
        if each.unmerged.steps > 0 and ahead.absent.get(name) == each.origin
    ]


def merge_weights(progress: Sequence[ReplicaProgress], ahead: ReplicaProgress, late: Sequence[int]) -> list[float]:
    """For each worker, the weight of its change.

    Local steps that began from the same synchronisation as those of the one ahead replace each other: their weights are
    their parts of these workers' tokens, and their sum is 1. The steps of late ones are added to those that the others
    have taken meanwhile: their weights are their parts of the tokens of all workers in these steps.
    """
    together = sum(each.unmerged.target_tokens for each in progress if each.merges_with(ahead))
    return [
        each.unmerged.target_tokens / together if each.merges_with(ahead) else each.unmerged.weight * (rank in late)
        for rank, each in enumerate(progress)
    ]


def broadcast_state(
    cluster: Cluster, source: int, header: Any = None, tensors: TensorFiles | None = None
) -> tuple[Any, dict[str, dict[str, Tensor]]]:
    """The JSON header and the tensors of rank `source`, for every worker. Only that rank passes them in."""
    sent = None if tensors is None else [header, list(tensors), _describe(tensors)]
    header, files, descriptions = cluster.all_gather_json(sent)[source]
    received: dict[str, dict[str, Tensor]] = {file: {} for file in files}
    for chunk in _chunks([TensorDescription(*each) for each in descriptions]):
        sizes = [each.padded_bytes for each in chunk]
        content = torch.zeros(sum(sizes), dtype=torch.uint8, device=cluster.device)
        parts = torch.split(content, sizes)
        if tensors is not None:
            for each, part in zip(chunk, parts, strict=True):
                each.view(part).copy_(tensors[each.file][each.name])
        cluster.broadcast(content, source)
        for each, part in zip(chunk, parts, strict=True):
            received[each.file][each.name] = each.view(part).clone()
    return header, received


class TensorDescription(NamedTuple):
    """A tensor of a state, as the other workers need to know it."""

    file: str
    name: str
    shape: Sequence[int]
    dtype: str

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self._dtype.itemsize

    @property
    def padded_bytes(self) -> int:
        """Bytes in a message, where every tensor begins at a multiple of its element size."""
        return math.ceil(self.size_bytes / ALIGNMENT) * ALIGNMENT

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def view(self, part: Tensor) -> Tensor:
        """The tensor in its part of a message."""
        return part[: self.size_bytes].view(self._dtype).view(list(self.shape))


def _describe(tensors: TensorFiles) -> list[TensorDescription]:
    return [
        TensorDescription(file, name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for file, named in tensors.items()
        for name, tensor in named.items()
    ]


def _chunks(described: Sequence[TensorDescription]) -> list[list[TensorDescription]]:
    """The tensors of each message. A message per tensor would wait hundreds of times for the slowest worker."""
    chunks: list[list[TensorDescription]] = []
    size_bytes = CHUNK_BYTES
    for each in described:
        if size_bytes + each.padded_bytes > CHUNK_BYTES:
            chunks.append([])
            size_bytes = 0
        chunks[-1].append(each)
        size_bytes += each.padded_bytes
    return chunks
