"""Processes on a GPU that do not belong to this run, as NVML lists them."""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import Any

import psutil


def local_workers() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_own(pid: int) -> bool:
    """True for this process and for other workers on this machine, which the same process has started."""
    if pid == os.getpid():
        return True
    with contextlib.suppress(psutil.Error):  # It may have ended, or belong to another container.
        return local_workers() > 1 and psutil.Process(pid).ppid() == os.getppid()
    return False


def split_processes(
    memory: dict[int, int], use: dict[int, float], is_own: Callable[[int], bool], workers: int
) -> tuple[set[int], set[int]]:
    """Processes of this run, and others, among those with memory on a GPU or work for it.

    A container may hide the numbers of its processes. Then as many of them as there are workers, those with the most
    work and memory, are taken for this run's, and not returned.
    """
    listed = set(memory) | set(use)
    if ours := set(filter(is_own, listed)):
        return ours, listed - ours
    by_size = sorted(listed, key=lambda pid: (use.get(pid, 0.0), memory.get(pid, 0)))
    return set(), set(by_size[: max(0, len(by_size) - workers)])


class GpuProcesses:
    """The processes on one GPU."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml, self._handle = library, handle
        self._seen_at_us = 0

    def read(self) -> dict[str, Any]:
        """Number of this run's processes and of others, with their memory and their use of the GPU.

        The use is None where the driver does not measure it.
        """
        memory, use = self._read_memory(), self._read_use()
        ours, others = split_processes(memory, use or {}, is_own, local_workers())
        return {
            "own_processes": len(ours),
            "other_processes": len(others),
            "other_memory_bytes": sum(memory.get(pid, 0) for pid in others),
            "other_use": None if use is None else sum(use.get(pid, 0.0) for pid in others),
        }

    def _read_memory(self) -> dict[int, int]:
        """Bytes by process; 0 where the driver does not tell."""
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return {}
        return {process.pid: process.usedGpuMemory or 0 for process in processes}

    def _read_use(self) -> dict[int, float] | None:
        """Part of the time since the last call in which each process computed; None where it is not measured."""
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_at_us)
        except self._nvml.NVMLError as error:
            # No samples are an error, too: nothing has computed.
            return {} if getattr(error, "value", None) == self._nvml.NVML_ERROR_NOT_FOUND else None
        self._seen_at_us = max((sample.timeStamp for sample in samples), default=self._seen_at_us)
        by_process = defaultdict(list)
        for sample in samples:
            by_process[sample.pid].append(sample.smUtil / 100)
        return {pid: fmean(parts) for pid, parts in by_process.items()}
