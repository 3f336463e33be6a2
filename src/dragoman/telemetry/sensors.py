"""Sensors of a machine while it trains: CPU, memory, disk, network interfaces, and GPUs.

A thread takes a reading every second, outside the training loop, and records one event every ten seconds.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from dragoman.events import Event, HostSampled

READING_INTERVAL_S = 1.0
EVENT_INTERVAL_S = 10.0
VIRTUAL_INTERFACES = ("lo", "docker", "br-", "veth", "virbr")
"""Name prefixes of interfaces that lead to no other machine. The interfaces of the test hosts are named otherwise."""

Readings = list[tuple[float, list[dict[str, Any]]]]
"""CPU use and the readings of all GPUs, once a second."""


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
        psutil.cpu_percent()  # The first call has nothing to compare with.
        before, readings = read_counters(), Readings()
        while not self._closed.wait(READING_INTERVAL_S):
            readings.append((psutil.cpu_percent() / 100, [gpu.read() for gpu in self._gpus]))
            if time.monotonic() - before.at_s >= EVENT_INTERVAL_S:
                before, readings = self._record_event(before, readings), []
        if readings:
            self._record_event(before, readings)

    def _record_event(self, before: Counters, readings: Readings) -> Counters:
        """Record what happened since `before`, and return the counters of now."""
        now = read_counters()
        memory = psutil.virtual_memory()
        self._record(
            HostSampled(
                host=self._host,
                span_s=now.at_s - before.at_s,
                cpu_use=sum(use for use, _ in readings) / len(readings),
                memory_used_bytes=memory.total - memory.available,
                memory_bytes=memory.total,
                disk_read_bytes=now.disk_read_bytes - before.disk_read_bytes,
                disk_written_bytes=now.disk_written_bytes - before.disk_written_bytes,
                interfaces=traffic(before, now, nominal_speeds()),
                gpus=[merge_gpu_readings(each) for each in zip(*(gpus for _, gpus in readings), strict=True)],
            )
        )
        return now


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
    """One GPU's readings as one: means, the peak of memory in use, and every throttle reason that occurred."""
    last = readings[-1]
    constant = {key: last[key] for key in ("index", "name", "memory_bytes", "power_limit_w")}
    means = {
        key: sum(reading[key] for reading in readings) / len(readings)
        for key in ("use", "power_w", "temperature_c", "clock_mhz")
    }
    return {
        **constant,
        **means,
        "memory_used_bytes": max(reading["memory_used_bytes"] for reading in readings),
        "throttled": sorted({reason for reading in readings for reason in reading["throttled"]}),
    }


class Gpu:
    """One GPU, read through NVML."""

    def __init__(self, library: Any, index: int) -> None:
        self._nvml, self._index = library, index
        self._handle = library.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "index": self._index,
            "name": nvml.nvmlDeviceGetName(handle),
            "use": self._number(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            "memory_used_bytes": int(memory.used),
            "memory_bytes": int(memory.total),
            "power_w": self._number(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
            "power_limit_w": self._number(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            "temperature_c": self._number(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "clock_mhz": self._number(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "throttled": self._throttled(),
        }

    def _number(self, read: Callable[[], float]) -> float:
        """The reading of a sensor, or zero where the GPU does not have it."""
        try:
            return float(read())
        except self._nvml.NVMLError:
            return 0.0

    def _throttled(self) -> list[str]:
        """Reasons why heat or power lowers the clocks. An idle GPU is not throttled."""
        nvml = self._nvml
        reasons = {
            "power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
            "heat": nvml.nvmlClocksThrottleReasonSwThermalSlowdown | nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
            "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
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
