import time
from types import SimpleNamespace

import pytest

from dragoman.events import HostSampled, from_json, to_json
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


def test_a_gpu_reading_has_all_sensors_and_the_throttle_reasons():
    reading = Gpu(FakeNvml(), 0).read()
    assert reading["use"] == pytest.approx(0.75)
    assert reading["power_limit_w"] == 700
    assert reading["power_w"] == 0, "a missing sensor reads zero"
    assert reading["throttled"] == ["power cap", "heat"], "an idle GPU is not throttled"


def test_gpu_readings_are_merged():
    reading = Gpu(FakeNvml(), 0).read()
    merged = merge_gpu_readings([reading, {**reading, "use": 0.25, "memory_used_bytes": 7, "throttled": []}])
    assert merged["use"] == pytest.approx(0.5)
    assert merged["memory_used_bytes"] == 7
    assert merged["throttled"] == ["heat", "power cap"]
