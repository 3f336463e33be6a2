"""Memory of training: how many tokens fit into a device's memory at once, and how much a process has used."""

import resource
from dataclasses import dataclass

import psutil
import torch

from dragoman.model.architecture import Architecture
from dragoman.settings import Settings

CPU_MICRO_BATCH_TOKENS = 4096
"""Activations of more tokens do not fit into a CPU's caches, and gain no speed."""
ACTIVATION_SHARE = 0.5
"""Share of a device's memory that activations may use: weights, optimizer state and other programs need the rest."""
USABLE_SHARE = 0.9
"""Share of a device's memory that training can use in all: the driver and gaps between tensors take the rest."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a training step: what the model needs however small the batch is, and more for each token."""

    fixed_bytes: float
    """Weights, gradients, optimizer state, moving average."""
    token_bytes: float
    """Activations of one source and one target token of a micro-batch."""

    def peak_bytes(self, tokens: int) -> float:
        """With micro-batches of so many tokens on each side."""
        return self.fixed_bytes + tokens * self.token_bytes

    def most_tokens(self, memory_bytes: float) -> int:
        """Largest micro-batch that fits."""
        return max(0, int((memory_bytes - self.fixed_bytes) / self.token_bytes))


def choose_micro_batch_tokens(
    settings: Settings, architecture: Architecture, device: torch.device, workers_on_host: int
) -> int:
    """Most tokens of one side in a micro-batch.

    The memory of a token is estimated, generously; if it does not suffice, training splits further. The estimate uses
    the memory that the machine has, not what is free now, so that a resumed run splits batches the same way.
    """
    if settings.training.micro_batch_tokens:
        return settings.training.micro_batch_tokens
    most = settings.batch.tokens if device.type == "cuda" else CPU_MICRO_BATCH_TOKENS
    activations = MemoryUse(0, activation_bytes(architecture))
    fitting = activations.most_tokens(ACTIVATION_SHARE * worker_memory_bytes(device, workers_on_host))
    return max(1, min(most, fitting))


def device_memory_bytes(device: torch.device) -> int:
    """All memory of a GPU, or of the machine."""
    on_gpu = device.type == "cuda"
    return torch.cuda.get_device_properties(device).total_memory if on_gpu else psutil.virtual_memory().total


def worker_memory_bytes(device: torch.device, workers_on_host: int) -> int:
    """One worker's part of the memory of its device."""
    devices = torch.cuda.device_count() if device.type == "cuda" else 1
    return device_memory_bytes(device) // -(-workers_on_host // devices)


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory that this process has used so far: of tensors on a GPU, or of the machine."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts in kibibytes.


def activation_bytes(a: Architecture) -> int:
    """Bytes that one source and one target token keep for the backward pass, in float32, without padding."""
    encoder = a.encoder_layers * (12 * a.d_model + 4 * a.feed_forward)
    decoder = a.decoder_layers * (20 * a.d_model + 4 * a.feed_forward)
    return 4 * (encoder + decoder + 8 * a.d_model)
