"""Load of this machine: cores that a process may use, and what other processes use of them and of the GPU."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from dragoman.text_lines import split_lines

CGROUPS = Path("/sys/fs/cgroup")
FULL_SHARE = 0.8
"""Part of the cores in use from which processes wait for each other."""
NOTABLE_SHARE = 0.1
"""Part of the cores that others must use to count."""
GPU_READINGS, GPU_READING_INTERVAL_S = 4, 0.2


def available_cores() -> float:
    """Cores that this process may use: its affinity, and the CPU quota of its cgroup."""
    return min([len(os.sched_getaffinity(0)), *_cgroup_quotas()])


def _cgroup_quotas() -> list[float]:
    """Quota in cores, if there is one."""
    quotas = []
    for line in split_lines(_read(Path("/proc/self/cgroup"))):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            quota, _, period = _read(CGROUPS / group.lstrip("/") / "cpu.max").partition(" ")
        elif "cpu" in controllers.split(","):
            folder = CGROUPS / controllers / group.lstrip("/")
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        else:
            continue
        if quota.isdecimal() and period.isdecimal():  # Without a quota: "max", -1, or no such file.
            quotas.append(int(quota) / int(period))
    return quotas


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds so far, at one moment."""

    at_s: float
    thread_s: float
    """Of the current thread."""
    process_s: float
    machine_s: float
    """Of all processes, on the cores that this one may use, and of the other guests of a virtual machine's host."""

    @classmethod
    def now(cls) -> "CpuTimes":
        cores = psutil.cpu_times(percpu=True)
        busy_s = sum(
            sum(core) - core.idle - getattr(core, "iowait", 0.0) - getattr(core, "guest", 0.0)
            for core in (cores[index] for index in os.sched_getaffinity(0) if index < len(cores))
        )
        return cls(time.perf_counter(), time.thread_time(), time.process_time(), busy_s)


@dataclass(frozen=True)
class CpuUse:
    """Cores in use, on average over a span."""

    cores: int
    """Cores that this process may run on."""
    own: float
    others: float

    @classmethod
    def between(cls, before: CpuTimes, after: CpuTimes) -> "CpuUse":
        span_s = max(after.at_s - before.at_s, 1e-9)
        own = (after.process_s - before.process_s) / span_s
        others = max(0.0, (after.machine_s - before.machine_s) / span_s - own)
        return cls(len(os.sched_getaffinity(0)), own, others)

    @property
    def is_contended(self) -> bool:
        """Whether this process had to wait for others."""
        return self.others > NOTABLE_SHARE * self.cores and self.own + self.others > FULL_SHARE * self.cores


def read_gpu_use(device: torch.device) -> float:
    """Share of the time in which other processes keep a GPU busy; 0 where the driver does not say.

    Call it before this process uses the GPU.
    """
    if device.type != "cuda":
        return 0.0
    import pynvml

    readings = []
    with contextlib.suppress(pynvml.NVMLError, RuntimeError):
        for _ in range(GPU_READINGS):
            readings.append(torch.cuda.utilization(device) / 100)
            time.sleep(GPU_READING_INTERVAL_S)
        return min(readings)  # A process that has just ended is still in the first readings.
    return 0.0
