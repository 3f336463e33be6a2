import torch

from dragoman.telemetry.compile_timer import CompileTimer


def test_only_what_is_compiled_anew_takes_time():
    double = torch.compile(lambda x: 2 * x, backend="eager", dynamic=False)
    compiling = CompileTimer()
    assert compiling.take() == 0
    double(torch.ones(2))
    assert compiling.take() > 0
    double(torch.ones(2))
    assert compiling.take() == 0
    double(torch.ones(3))
    assert compiling.take() > 0, "another shape is compiled for"
