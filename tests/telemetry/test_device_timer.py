import time

import torch

from dragoman.telemetry.device_timer import DeviceTimer


def test_the_last_span_counts_and_nothing_between_spans():
    watch = DeviceTimer(torch.device("cpu"))
    assert watch.seconds == 0
    begun = time.perf_counter()
    watch.start()
    time.sleep(0.02)
    watch.stop()
    first, whole = watch.seconds, time.perf_counter() - begun
    assert 0.02 <= first <= whole
    time.sleep(0.02)
    assert watch.seconds == first
    begun = time.perf_counter()
    watch.start()
    watch.stop()
    assert 0 < watch.seconds <= time.perf_counter() - begun
