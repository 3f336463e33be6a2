from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from benchmarks.simulated_workers import SimulatedCluster, SimulatedWorld
from torch import nn

from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.quantized_mean import QuantizedMean
from dragoman.distributed.exchange.side_stream import SideStream
from dragoman.distributed.step_stats import StepStats

CPU = torch.device("cpu")
LONG_CYCLES = 2_000_000_000
"""About a second of a GPU."""


def test_a_cpu_needs_no_copies_and_no_stream():
    stream, tensor = SideStream(CPU), torch.ones(3)
    with stream.after_compute(tensor), stream.active():
        assert stream.copy_to(CPU, tensor) is tensor
    stream.hand_over(tensor)


def mean_on(device: torch.device) -> list[torch.Tensor]:
    def average(cluster: SimulatedCluster) -> torch.Tensor:
        values = torch.randn(5000, generator=torch.Generator().manual_seed(cluster.rank)).to(device)
        mean = QuantizedMean(cluster, ThreadPoolExecutor(1), SideStream(device), bits=4)
        mean.start(values)()
        return mean.start(values)().cpu()

    return SimulatedWorld(2).run(average, device)


def test_all_workers_get_the_same_mean():
    one, other = mean_on(CPU)
    assert torch.equal(one, other)


@pytest.mark.gpu
def test_a_gpu_averages_as_a_cpu_does():
    one, other = mean_on(torch.device("cuda", 0))
    assert torch.equal(one, other)
    torch.testing.assert_close(one, mean_on(CPU)[0], rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
def test_averages_arrive_while_the_compute_stream_of_a_gpu_is_busy():
    device, all_have_started = torch.device("cuda", 0), Barrier(2)

    def average(cluster: SimulatedCluster) -> bool:
        weights, zeros = nn.Parameter(torch.zeros(100_000, device=device)), [0.0, 0.0]
        exchange = LocalSteps(cluster, [weights], 2, "int4", 1.0, 0.0, overlap=1)
        stats = StepStats(torch.zeros(2, device=device), 1, zeros, zeros)

        def advance() -> None:
            exchange.all_reduce(stats, 2)
            exchange.synchronize(flush=False)

        for _ in range(4):  # Kernels and pinned memory that are used for the first time may wait for the whole device.
            advance()
        torch.cuda.synchronize(device)
        advance()
        all_have_started.wait()  # Both workers have the same compute stream.
        torch.cuda._sleep(LONG_CYCLES)
        advance()
        return torch.cuda.current_stream(device).query()

    assert SimulatedWorld(2).run(average, device) == [False, False], "Python has not waited for the kernels"
