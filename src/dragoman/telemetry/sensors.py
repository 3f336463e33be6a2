"""What a machine does while it trains: processors, memory, disk, network ports, and GPUs where there are any.

A thread looks once a second, off the path of the steps. What it saw becomes one event every ten seconds.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from dragoman.events import Event, HostSampled

LOOK_S = 1.0
TELL_S = 10.0
VIRTUAL = ("lo", "docker", "br-", "veth", "virbr")
"""Beginnings of the names of ports that lead to no other machine. A test bed's ports are named otherwise."""


@dataclass(frozen=True)
class Counters:
    """Sums since the machine was started, at one moment."""

    at_s: float
    disk_read_bytes: int
    disk_written_bytes: int
    ports: dict[str, tuple[int, int]]
    """Bytes in and out of each network port."""


class Sensors:
    """Looks at this machine until it is closed, and tells what it saw."""

    def __init__(self, host: str, tell: Callable[[Event], object]) -> None:
        self._host, self._tell = host, tell
        self._gpus = find_gpus()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sensors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what was seen since the last event, and stop."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        psutil.cpu_percent()  # The first call has nothing to compare with.
        before, looks = read_counters(), list[tuple[float, list[dict[str, Any]]]]()
        while not self._closed.wait(LOOK_S):
            looks.append((psutil.cpu_percent() / 100, [gpu.read() for gpu in self._gpus]))
            if time.monotonic() - before.at_s >= TELL_S:
                before, looks = self._told(before, looks), []
        if looks:
            self._told(before, looks)

    def _told(self, before: Counters, looks: Sequence[tuple[float, list[dict[str, Any]]]]) -> Counters:
        now = read_counters()
        memory = psutil.virtual_memory()
        self._tell(
            HostSampled(
                host=self._host,
                span_s=now.at_s - before.at_s,
                cpu_use=sum(use for use, _ in looks) / len(looks),
                memory_used_bytes=memory.total - memory.available,
                memory_bytes=memory.total,
                disk_read_bytes=now.disk_read_bytes - before.disk_read_bytes,
                disk_written_bytes=now.disk_written_bytes - before.disk_written_bytes,
                interfaces=traffic(before, now, nominal_speeds()),
                gpus=[mean(list(readings)) for readings in zip(*(gpus for _, gpus in looks), strict=True)],
            )
        )
        return now


def read_counters() -> Counters:
    disk = psutil.disk_io_counters()  # None on machines that keep no such counters.
    ports = {
        name: (port.bytes_recv, port.bytes_sent)
        for name, port in psutil.net_io_counters(pernic=True).items()
        if not name.startswith(VIRTUAL)
    }
    return Counters(time.monotonic(), disk.read_bytes if disk else 0, disk.write_bytes if disk else 0, ports)


def nominal_speeds() -> dict[str, float]:
    """What each port is made for, in bits a second; a port that does not say is not here."""
    return {name: 1e6 * port.speed for name, port in psutil.net_if_stats().items() if port.speed > 0}


def traffic(before: Counters, now: Counters, speeds: dict[str, float]) -> list[dict[str, Any]]:
    """What went through each port in between. Counters that fell were started anew, and say nothing."""
    return [
        {
            "name": name,
            "received_bytes": max(0, received - before.ports[name][0]),
            "sent_bytes": max(0, sent - before.ports[name][1]),
            "nominal_bits_per_s": speeds.get(name),
        }
        for name, (received, sent) in now.ports.items()
        if name in before.ports
    ]


def mean(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One GPU's readings as one: means of what goes up and down, the most memory, every reason for lower clocks."""
    last = readings[-1]
    steady = {key: last[key] for key in ("index", "name", "memory_bytes", "power_limit_w")}
    moving = {
        key: sum(reading[key] for reading in readings) / len(readings)
        for key in ("use", "power_w", "temperature_c", "clock_mhz")
    }
    return {
        **steady,
        **moving,
        "memory_used_bytes": max(reading["memory_used_bytes"] for reading in readings),
        "throttled": sorted({reason for reading in readings for reason in reading["throttled"]}),
    }


class Gpu:
    """One GPU, by NVIDIA's management library."""

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
        """Not every GPU has every sensor; one that is missing reads zero."""
        try:
            return float(read())
        except self._nvml.NVMLError:
            return 0.0

    def _throttled(self) -> list[str]:
        """Why clocks are lower than they could be, where that is heat or power; an idle GPU is not throttled."""
        nvml = self._nvml
        reasons = {
            "power cap": nvml.nvmlClocksThrottleReasonSwPowerCap,
            "heat": nvml.nvmlClocksThrottleReasonSwThermalSlowdown | nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
            "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        }
        try:
            present = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        except nvml.NVMLError:
            return []
        return [name for name, bits in reasons.items() if present & bits]


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine; none where there is no driver."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return [Gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    return []


def driver_version() -> str:
    """Of NVIDIA's driver; empty where there is none."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return ""
