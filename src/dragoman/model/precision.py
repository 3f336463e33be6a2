"""In which arithmetic a model runs, and how much of a batch its memory takes at once."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import psutil
import torch

from dragoman.model.architecture import Architecture
from dragoman.model.kernels.availability import has_kernels, takes_heads
from dragoman.settings import Settings

CPU_MICRO_TOKENS = 4096
"""Activations of more tokens no longer fit a processor's caches, and gain nothing."""
MEMORY_SHARE = 0.5
"""How much of a device's memory activations may take: weights, optimizer and others need the rest."""


@dataclass(frozen=True)
class Precision:
    """The type of the matrix products; weights and sums stay in float32."""

    device_type: str
    dtype: torch.dtype

    @classmethod
    def choose(cls, settings: Settings, device: torch.device) -> "Precision":
        """bf16 where the hardware multiplies it faster than fp32: GPUs from Ampere on, CPUs with AVX512-BF16 or AMX."""
        wanted = settings.training.precision
        if wanted == "auto":
            wanted = "bf16" if _multiplies_bf16(device) else "fp32"
        return cls(device.type, torch.bfloat16 if wanted == "bf16" else torch.float32)

    def autocast(self) -> AbstractContextManager[None]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device_type, self.dtype)

    @property
    def name(self) -> str:
        return "bf16" if self.dtype == torch.bfloat16 else "fp32"


def _multiplies_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def replays(precision: Precision, architecture: Architecture, device: torch.device) -> bool:
    """Whether training runs compiled and replayed, on our own kernels: they take half precision and such heads."""
    return has_kernels(device) and precision.dtype == torch.bfloat16 and takes_heads(architecture.head_size)


def micro_tokens(settings: Settings, architecture: Architecture, device: torch.device, neighbours: int) -> int:
    """Most tokens of a side that go through the model at once.

    The memory that a token needs is estimated, generously; should it not suffice after all, training cuts further. The
    estimate looks at the memory that the machine has, not at what happens to be free, so that a resumed run cuts alike.
    """
    if settings.training.micro_batch_tokens:
        return settings.training.micro_batch_tokens
    if device.type == "cuda":
        sharing = -(-neighbours // torch.cuda.device_count())
        memory_bytes = torch.cuda.get_device_properties(device).total_memory // sharing
        most = settings.batch.tokens
    else:
        memory_bytes = psutil.virtual_memory().total // neighbours
        most = CPU_MICRO_TOKENS
    fits = int(MEMORY_SHARE * memory_bytes / activation_bytes(architecture))
    return max(1, min(most, fits))


def activation_bytes(a: Architecture) -> int:
    """What one source and one target token leave behind for the backward pass, in float32, without padding."""
    encoder = a.encoder_layers * (12 * a.d_model + 4 * a.feed_forward)
    decoder = a.decoder_layers * (20 * a.d_model + 4 * a.feed_forward)
    return 4 * (encoder + decoder + 8 * a.d_model)
