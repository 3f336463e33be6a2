"""The type of the matrix products: bf16 where the hardware multiplies it faster, float32 elsewhere."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from dragoman.settings import Settings


@dataclass(frozen=True)
class Precision:
    """The type of the matrix products; weights and sums stay in float32."""

    device_type: str
    dtype: torch.dtype

    @classmethod
    def choose(cls, settings: Settings, device: torch.device) -> "Precision":
        """The precision to train in: `training.precision`, or what the hardware is fastest at."""
        choice = settings.training.precision
        bf16 = choice == "bf16" or (choice == "auto" and has_fast_bf16(device))
        return cls(device.type, torch.bfloat16 if bf16 else torch.float32)

    @classmethod
    def for_decoding(cls, device: torch.device) -> "Precision":
        """The precision to translate in: bf16 on GPUs that have it, float32 elsewhere."""
        bf16 = device.type == "cuda" and has_fast_bf16(device)
        return cls(device.type, torch.bfloat16 if bf16 else torch.float32)

    def autocast(self) -> AbstractContextManager[None]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device_type, self.dtype)

    @property
    def name(self) -> str:
        return "bf16" if self.dtype == torch.bfloat16 else "fp32"


def has_fast_bf16(device: torch.device) -> bool:
    """True if the hardware multiplies bf16 faster than float32: GPUs from Ampere on, CPUs with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
