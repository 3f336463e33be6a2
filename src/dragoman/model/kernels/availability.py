"""Conditions of the Triton kernels: Triton, a C compiler for it, half precision, and Ampere or later."""

import importlib.util
import os
import shutil
from functools import lru_cache

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


def can_run_kernels(x: Tensor) -> bool:
    """True if the Triton kernels can process a tensor of this device and type."""
    # Only code for the kernels is ever compiled, and the compiler cannot trace the search for Triton.
    return x.is_cuda and x.dtype in HALF and (torch.compiler.is_compiling() or has_kernels(x.device))


def supports_head_size(size: int) -> bool:
    """True if the attention kernels support heads of `size` features: tensor cores need powers of two, and tiles of
    more than 128 do not fit into the shared memory of every GPU."""
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
    """True if Triton finds a C compiler, with which it builds its kernel launchers."""
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
