"""The translation that all workers of a synthesis do, and the machine that does it."""

import ctypes
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

DeviceKind = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class TranslationJob:
    """Everything that decides the translation of a line and its scores, apart from the models and the machine."""

    device: DeviceKind
    decoding: dict[str, Any]
    """Decoding settings that differ from the model's."""
    n_best: int = 1
    sampling: dict[str, Any] | None = None
    """Settings of sampling; None is beam search."""
    sampled_share: float = 0.0
    """Share of the pairs whose scores are sampled for a threshold, if a backward model scores them."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_cpu() -> str:
    """The processor and its widest vector instructions, by which libraries choose their code."""
    text = Path("/proc/cpuinfo").read_bytes().decode() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = set((re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE) or ["", ""])[1].split())
    widest = next((flag for flag in ("avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx") if flag in flags), "")
    return " ".join(filter(None, (name[1] if name else platform.machine(), widest)))


def count_local_gpus() -> int:
    """GPUs that this process may use, asked of the driver: torch takes seconds to import."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    # Each returns a status. Any but 0, such as that of a driver without a GPU, leaves the count at 0.
    driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return count.value
