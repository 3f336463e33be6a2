import time
from types import SimpleNamespace

import pytest

from dragoman.events import HostSampled, from_json, to_json
from dragoman.telemetry import sensors
from dragoman.telemetry.sensors import Counters, Gpu, Sensors, mean, read_counters, traffic


def test_a_machine_is_watched_until_the_end(monkeypatch):
    monkeypatch.setattr(sensors, "LOOK_S", 0.01)
    monkeypatch.setattr(sensors, "TELL_S", 0.03)
    told = []
    watching = Sensors("here", told.append)
    while len(told) < 2:
        time.sleep(0.01)
    watching.close()
    for event in told:
        assert isinstance(event, HostSampled)
        assert event.host == "here"
        assert 0 <= event.cpu_use <= 1
        assert 0 < event.memory_used_bytes < event.memory_bytes
        assert from_json(to_json(event)) == event
    quiet = len(told)
    time.sleep(0.05)
    assert len(told) == quiet, "after its end nothing is told"


def test_ports_tell_what_went_through_them_in_between():
    before = Counters(0.0, 0, 0, {"eth0": (100, 1000), "eth1": (50, 50)})
    now = Counters(2.0, 0, 0, {"eth0": (160, 1500), "eth1": (10, 60), "new0": (9, 9)})
    assert traffic(before, now, {"eth0": 1e9}) == [
        {"name": "eth0", "received_bytes": 60, "sent_bytes": 500, "nominal_bits_per_s": 1e9},
        {"name": "eth1", "received_bytes": 0, "sent_bytes": 10, "nominal_bits_per_s": None},
    ]


def test_loopback_leads_nowhere():
    assert "lo" not in read_counters().ports


class Driver:
    """The calls of NVIDIA's library that are made, for a machine that has no such GPU."""

    class NVMLError(Exception):
        pass

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = 0
    nvmlClocksThrottleReasonSwPowerCap = 4  # noqa: N815
    nvmlClocksThrottleReasonSwThermalSlowdown = 32  # noqa: N815
    nvmlClocksThrottleReasonHwThermalSlowdown = 64  # noqa: N815
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 128  # noqa: N815

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        raise self.NVMLError

    def __getattr__(self, name):
        return {
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=5, total=10),
            "nvmlDeviceGetName": lambda handle: "GPU",
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=75),
            "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
            "nvmlDeviceGetTemperature": lambda handle, kind: 60,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1900,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4 | 64 | 1,
        }[name]


def test_a_gpu_tells_what_it_can_and_why_its_clocks_are_low():
    reading = Gpu(Driver(), 0).read()
    assert reading["use"] == pytest.approx(0.75)
    assert reading["power_limit_w"] == 700
    assert reading["power_w"] == 0, "a sensor that a GPU does not have reads zero"
    assert reading["throttled"] == ["power cap", "heat"], "being idle is no throttling"


def test_readings_become_one():
    reading = Gpu(Driver(), 0).read()
    both = mean([reading, {**reading, "use": 0.25, "memory_used_bytes": 7, "throttled": []}])
    assert both["use"] == pytest.approx(0.5)
    assert both["memory_used_bytes"] == 7
    assert both["throttled"] == ["heat", "power cap"]
