import torch

from dragoman.telemetry.compile_timer import time_compilation
from dragoman.telemetry.step_timing import StepTimer


def test_only_new_compilations_count():
    double = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    timer = StepTimer()
    time_compilation(timer)
    timer.enter("compute")
    times_s = []
    for length in (2, 2, 3):
        double(torch.ones(length))
        times_s.append(timer.take().read(alone=False)["compile"])
    first, again, new_shape = times_s
    assert first > 0
    assert again == 0
    assert new_shape > 0, "a new shape is compiled again"
