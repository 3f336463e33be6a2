import os
import time
from types import SimpleNamespace

import pytest

from dragoman.event_json import from_json, to_json
from dragoman.events import HostSampled
from dragoman.telemetry import sensors
from dragoman.telemetry.sensors import Counters, Gpu, Sensors, merge_gpu_readings, read_counters, traffic


def test_sensors_record_events_until_they_are_closed(monkeypatch):
    monkeypatch.setattr(sensors, "READING_INTERVAL_S", 0.01)
    monkeypatch.setattr(sensors, "EVENT_INTERVAL_S", 0.03)
    recorded = []
    sensing = Sensors("here", recorded.append)
    while len(recorded) < 2:
        time.sleep(0.01)
    sensing.close()
    for event in recorded:
        assert isinstance(event, HostSampled)
        assert event.host == "here"
        assert 0 <= event.cpu_use <= 1
        assert 0 < event.memory_used_bytes < event.memory_bytes
        assert from_json(to_json(event)) == event
    count = len(recorded)
    time.sleep(0.05)
    assert len(recorded) == count, "nothing is recorded after close"


def test_traffic_is_the_difference_of_two_readings():
    before = Counters(0.0, 0, 0, {"eth0": (100, 1000), "eth1": (50, 50)})
    now = Counters(2.0, 0, 0, {"eth0": (160, 1500), "eth1": (10, 60), "new0": (9, 9)})
    assert traffic(before, now, {"eth0": 1e9}) == [
        {"name": "eth0", "received_bytes": 60, "sent_bytes": 500, "nominal_bits_per_s": 1e9},
        {"name": "eth1", "received_bytes": 0, "sent_bytes": 10, "nominal_bits_per_s": None},
    ]


def test_loopback_is_not_an_interface_to_other_machines():
    assert "lo" not in read_counters().interfaces


class FakeNvml:
    """A fake of the NVML calls that are used."""

    class NVMLError(Exception):
        value = 3

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0
    NVML_ERROR_NOT_FOUND = 6
    nvmlClocksThrottleReasonApplicationsClocksSetting = 2  # noqa: N815
    nvmlClocksThrottleReasonSwPowerCap = 4  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815

    def __init__(self, processes=(), samples=None):
        self.processes = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes]
        self.samples = samples

    def process_utilisation(self, handle, since_us):
        if self.samples is None:
            raise self.NVMLError
        return [SimpleNamespace(pid=pid, timeStamp=at_us, smUtil=use) for pid, at_us, use in self.samples]

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        raise self.NVMLError

    def __getattr__(self, name):
        return {
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=5, total=10),
            "nvmlDeviceGetName": lambda handle: "GPU",
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=75, memory=40),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTemperature": lambda handle, kind: 60,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1900,
            "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4 | 64 | 1,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: self.processes,
            "nvmlDeviceGetProcessUtilization": self.process_utilisation,
        }[name]


def test_a_gpu_reading_has_all_sensors_and_the_throttle_reasons():
    reading = Gpu(FakeNvml(), 0).read()
    assert (reading["use"], reading["memory_use"]) == pytest.approx((0.75, 0.4))
    assert (reading["clock_mhz"], reading["max_clock_mhz"]) == (1900, 1980)
    assert reading["power_limit_w"] == 700
    assert reading["power_w"] == 0, "a missing sensor reads zero"
    assert reading["throttled"] == ["power cap", "heat"], "an idle GPU is not throttled"


def test_gpu_readings_are_merged():
    reading = Gpu(FakeNvml(), 0).read()
    later = {**reading, "use": 0.25, "memory_used_bytes": 7, "throttled": [], "other_processes": 2, "other_use": 0.3}
    merged = merge_gpu_readings([reading, later])
    assert merged["use"] == pytest.approx(0.5)
    assert merged["memory_used_bytes"] == 7
    assert merged["throttled"] == ["heat", "power cap"]
    assert merged["other_processes"] == 2
    assert merged["other_use"] == 0.3, "readings without the sensor do not count"
    assert merged.keys() == reading.keys()


def test_the_processes_of_others_are_told_from_this_one():
    own, other = os.getpid(), os.getppid()
    reading = Gpu(FakeNvml([(own, 100), (other, 30)], [(own, 1, 70), (other, 1, 20), (other, 2, 40)]), 0).read()
    assert (reading["own_processes"], reading["other_processes"], reading["other_memory_bytes"]) == (1, 1, 30)
    assert reading["other_use"] == pytest.approx(0.3)


def test_a_driver_that_measures_no_processes_gives_none():
    reading = Gpu(FakeNvml([(os.getpid(), None)]), 0).read()
    assert (reading["own_processes"], reading["other_processes"], reading["other_use"]) == (1, 0, None)
