"""Where our own kernels run: they need Triton, a C compiler for it, half precision, and Ampere or later."""

import importlib.util
import os
import shutil
from functools import lru_cache

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


def runs_kernels(x: Tensor) -> bool:
    """Whether kernels of ours can work on such a tensor."""
    # Only what runs on kernels is ever compiled, and a compiler cannot look for Triton.
    return x.is_cuda and x.dtype in HALF and (torch.compiler.is_compiling() or has_kernels(x.device))


def takes_heads(size: int) -> bool:
    """Whether attention kernels of ours take heads of so many features: matrix units want powers of two, and tiles of
    more than 128 do not fit into every GPU's shared memory."""
    return 16 <= size <= 128 and size.bit_count() == 1


@lru_cache
def has_kernels(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
        and _has_compiler()
    )


def _has_compiler() -> bool:
    """Whether Triton will find what it builds the start of its kernels with."""
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
