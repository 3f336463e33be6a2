import time

import torch

from dragoman.telemetry.device_timer import DeviceTimer


def test_the_time_between_spans_does_not_count():
    timer = DeviceTimer(torch.device("cpu"))
    assert timer.seconds == 0
    started_at = time.perf_counter()
    timer.start()
    time.sleep(0.02)
    timer.stop()
    first, elapsed = timer.seconds, time.perf_counter() - started_at
    assert 0.02 <= first <= elapsed
    time.sleep(0.02)
    assert timer.seconds == first
    started_at = time.perf_counter()
    timer.start()
    timer.stop()
    assert 0 < timer.seconds <= time.perf_counter() - started_at
