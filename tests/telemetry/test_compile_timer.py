import torch

from dragoman.telemetry.compile_timer import CompileTimer


def test_only_new_compilations_count():
    double = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    timer = CompileTimer()
    assert timer.take() == 0
    double(torch.ones(2))
    assert timer.take() > 0
    double(torch.ones(2))
    assert timer.take() == 0
    double(torch.ones(3))
    assert timer.take() > 0, "a new shape is compiled again"
