"""The state of training: its progress, and snapshots of all its tensors.

A snapshot of a GPU's tensors is taken on the GPU, which copies them in about a millisecond. Training continues, and the
thread that writes the checkpoint moves the snapshot to the CPU meanwhile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from dragoman.batching.data_loader import Position
from dragoman.model.model_folder import WEIGHTS_FILE

TRAINED_FILE = "trained.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
MIN_FREE_MEMORY = 0.1
"""Part of a GPU's memory that must stay free beside a snapshot; otherwise the snapshot is taken on the CPU."""


@dataclass(frozen=True)
class TrainingState:
    """The progress of a run, without its tensors."""

    step: int = 0
    position: Position = field(default_factory=Position)
    learning_rate_factor: float = 1.0
    """Lowered by each rollback to a checkpoint after steps that were not finite."""
    rollbacks: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    """Best validation value so far, by metric."""
    stale_evaluations: int = 0
    """Evaluations in a row without a better value."""
    loss: float | None = None
    """Validation loss at this step, if it was evaluated and is finite."""
    elapsed_s: float = 0.0
    """Training time since the start of the run, resumes included."""
    worlds: tuple[str, ...] = ()
    """The worlds that trained up to this step, each with a name of its own; the last one is the present world."""

    @classmethod
    def from_json(cls, content: Any) -> "TrainingState":
        position, worlds = Position(**content["position"]), tuple(content.get("worlds", ()))
        return cls(**{**content, "position": position, "worlds": worlds})

    def in_world(self, world: str) -> "TrainingState":
        """The same state in the present world."""
        return self if world in self.worlds[-1:] else replace(self, worlds=(*self.worlds, world))


@dataclass(frozen=True)
class Snapshot:
    """A copy of the contents of a checkpoint that training no longer touches."""

    state: TrainingState
    weights: dict[str, Tensor]
    trained: dict[str, Tensor] | None
    optimizer: dict[str, Tensor]
    copied: torch.cuda.Event | None = None
    """Reached by a GPU once it has made the copies; None for copies on the CPU."""

    @classmethod
    def take(
        cls,
        state: TrainingState,
        weights: Mapping[str, Tensor],
        trained: Mapping[str, Tensor] | None,
        optimizer: Mapping[str, Tensor],
    ) -> "Snapshot":
        """Copy the tensors, on their own device where it has room."""
        originals = [*weights.values(), *(trained or {}).values(), *optimizer.values()]
        device = next(iter(weights.values())).device
        stays = device.type != "cuda" or _has_room(device, originals)
        copies = [copy_tensors(part, None if stays else "cpu") for part in (weights, trained or {}, optimizer)]
        copied = None
        if stays and device.type == "cuda":
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(torch.cuda.current_stream(device))
        return cls(state, copies[0], None if trained is None else copies[1], copies[2], copied)

    def move_to_cpu(self) -> None:
        """Move the tensors to the CPU one by one, on a stream of its own: meanwhile the GPU continues to compute."""
        if self.copied is None:
            return
        device = next(tensor.device for tensor in self.weights.values())
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_event(self.copied)
        with torch.cuda.stream(stream):
            for tensors in self.files().values():
                for name, tensor in tensors.items():
                    tensors[name] = tensor.to("cpu")

    def files(self) -> dict[str, dict[str, Tensor]]:
        tensors = {WEIGHTS_FILE: self.weights, OPTIMIZER_FILE: self.optimizer}
        return tensors if self.trained is None else {**tensors, TRAINED_FILE: self.trained}

    @classmethod
    def from_files(cls, state: TrainingState, files: Mapping[str, dict[str, Tensor]]) -> "Snapshot":
        return cls(state, files[WEIGHTS_FILE], files.get(TRAINED_FILE), files[OPTIMIZER_FILE])


def copy_tensors(tensors: Mapping[str, Tensor], device: str | None = None) -> dict[str, Tensor]:
    """Copies that share no memory with the originals, on a device or on their own."""
    return {
        name: tensor.detach().to(device or tensor.device, copy=True).contiguous() for name, tensor in tensors.items()
    }


def _has_room(device: torch.device, originals: Iterable[Tensor]) -> bool:
    """True if a GPU has memory for copies of these tensors, and for what else training may need."""
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return sum(tensor.nbytes for tensor in originals) < free_bytes - MIN_FREE_MEMORY * total_bytes
