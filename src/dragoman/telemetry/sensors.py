"""Sensors of a machine while it trains: CPU, memory, disk, network interfaces, and GPUs.

A thread takes a reading every second, outside the training loop, and records one event every ten seconds.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import psutil

from dragoman.events import Event, HostSampled
from dragoman.telemetry.gpu_processes import GpuProcesses

READING_INTERVAL_S = 1.0
EVENT_INTERVAL_S = 10.0
VIRTUAL_INTERFACES = ("lo", "docker", "br-", "veth", "virbr")
"""Name prefixes of interfaces that lead to no other machine. The interfaces of the test hosts are named otherwise."""

MEANS = ("use", "memory_use", "power_w", "temperature_c", "clock_mhz")
PEAKS = ("memory_used_bytes", "own_processes", "other_processes", "other_memory_bytes")
"""Readings of a GPU of which an event has the mean, and the peak."""


class Reading(NamedTuple):
    """The sensors at one moment."""

    cpu_use: float
    io_wait: float
    """Part of the time since the last reading in which cores were idle, waiting for a disk."""
    gpus: list[dict[str, Any]]


@dataclass(frozen=True)
class Counters:
    """Totals since the machine was booted, at one moment."""

    at_s: float
    disk_read_bytes: int
    disk_written_bytes: int
    interfaces: dict[str, tuple[int, int]]
    """Bytes received and sent by each network interface."""


class Sensors:
    """Reads this machine's sensors until it is closed, and records events."""

    def __init__(self, host: str, record: Callable[[Event], object]) -> None:
        self._host, self._record = host, record
        self._gpus = find_gpus()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Record the readings since the last event, and stop."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        read_cpu()  # The first call has nothing to compare with.
        before = read_counters()
        readings: list[Reading] = []
        while not self._closed.wait(READING_INTERVAL_S):
            readings.append(Reading(*read_cpu(), [gpu.read() for gpu in self._gpus]))
            if time.monotonic() - before.at_s >= EVENT_INTERVAL_S:
                before, readings = self._record_event(before, readings), []
        if readings:
            self._record_event(before, readings)

    def _record_event(self, before: Counters, readings: Sequence[Reading]) -> Counters:
        """Record what happened since `before`, and return the counters of now."""
        now = read_counters()
        memory = psutil.virtual_memory()
        self._record(
            HostSampled(
                host=self._host,
                span_s=now.at_s - before.at_s,
                cpu_use=fmean(reading.cpu_use for reading in readings),
                io_wait=fmean(reading.io_wait for reading in readings),
                memory_used_bytes=memory.total - memory.available,
                memory_bytes=memory.total,
                disk_read_bytes=now.disk_read_bytes - before.disk_read_bytes,
                disk_written_bytes=now.disk_written_bytes - before.disk_written_bytes,
                interfaces=traffic(before, now, nominal_speeds()),
                gpus=[merge_gpu_readings(each) for each in zip(*(reading.gpus for reading in readings), strict=True)],
            )
        )
        return now


def read_cpu() -> tuple[float, float]:
    """Parts of the time since the last call in which cores were in use, and in which they waited for a disk."""
    io_wait = getattr(psutil.cpu_times_percent(), "iowait", 0.0)  # Only Linux tells.
    return psutil.cpu_percent() / 100, io_wait / 100


def read_counters() -> Counters:
    disk = psutil.disk_io_counters()  # None on machines without such counters.
    interfaces = {
        name: (counters.bytes_recv, counters.bytes_sent)
        for name, counters in psutil.net_io_counters(pernic=True).items()
        if not name.startswith(VIRTUAL_INTERFACES)
    }
    return Counters(time.monotonic(), disk.read_bytes if disk else 0, disk.write_bytes if disk else 0, interfaces)


def nominal_speeds() -> dict[str, float]:
    """Nominal speed of each network interface in bits a second, without those that report none."""
    return {name: 1e6 * interface.speed for name, interface in psutil.net_if_stats().items() if interface.speed > 0}


def traffic(before: Counters, now: Counters, speeds: dict[str, float]) -> list[dict[str, Any]]:
    """Bytes through each interface between two readings. A counter that fell was reset, and counts as no traffic."""
    return [
        {
            "name": name,
            "received_bytes": max(0, received - before.interfaces[name][0]),
            "sent_bytes": max(0, sent - before.interfaces[name][1]),
            "nominal_bits_per_s": speeds.get(name),
        }
        for name, (received, sent) in now.interfaces.items()
        if name in before.interfaces
    ]


def merge_gpu_readings(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One GPU's readings as one: means, peaks of memory and processes, and every throttle reason that occurred."""
    measured = [reading["other_use"] for reading in readings if reading["other_use"] is not None]
    return {
        **{key: readings[-1][key] for key in ("index", "name", "memory_bytes", "power_limit_w", "max_clock_mhz")},
        **{key: fmean(reading[key] for reading in readings) for key in MEANS},
        **{key: max(reading[key] for reading in readings) for key in PEAKS},
        "other_use": fmean(measured) if measured else None,
        "throttled": sorted({reason for reading in readings for reason in reading["throttled"]}),
    }


class Gpu:
    """One GPU, read through NVML."""

    def __init__(self, library: Any, index: int) -> None:
        self._nvml, self._index = library, index
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self._processes = GpuProcesses(library, self._handle)

    def read(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "index": self._index,
            "name": nvml.nvmlDeviceGetName(handle),
            "use": self._number(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            "memory_use": self._number(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100),
            "memory_used_bytes": int(memory.used),
            "memory_bytes": int(memory.total),
            "power_w": self._number(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "power_limit_w": self._number(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            "temperature_c": self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "clock_mhz": self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "max_clock_mhz": self._number(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "throttled": self._throttled(),
            **self._processes.read(),
        }

    def _number(self, read: Callable[[], float]) -> float:
        """The reading of a sensor, or zero where the GPU does not have it."""
        try:
            return float(read())
        except self._nvml.NVMLError:
            return 0.0

    def _throttled(self) -> list[str]:
        """Reasons why the clocks are lowered. An idle GPU is not throttled."""
        nvml = self._nvml
        reasons = {
            "power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
            "heat": nvml.nvmlClocksThrottleReasonSwThermalSlowdown | nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
            "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
            "clock setting": nvml.nvmlClocksThrottleReasonApplicationsClocksSetting,
        }
        try:
            active = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except nvml.NVMLError:
            return []
        return [name for name, bits in reasons.items() if active & bits]


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine; empty without an NVIDIA driver."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return [Gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    return []


def driver_version() -> str:
    """Version of the NVIDIA driver; empty without one."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return ""
