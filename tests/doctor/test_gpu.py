"""The doctor on a GPU: it trains compiled and captured, as the run will."""

import pytest
import torch

from dragoman.doctor import step_benchmark
from dragoman.doctor.measure_and_estimate import benchmark_request
from dragoman.doctor.step_benchmark import BenchmarkSink, run_request
from dragoman.events import StepDone
from dragoman.model.cuda_graph import GraphedPass

from ..small import TINY

pytestmark = pytest.mark.gpu

SMALL = (*TINY, "model.d_model=64", "training.precision=bf16")
"""The shapes of the other tests on a GPU, so that compiled kernels are found in torch's cache."""


@pytest.fixture
def compile_times(monkeypatch) -> list[float]:
    """Compile time of each step of the benchmarks."""
    times_s: list[float] = []
    record = BenchmarkSink.record

    def keep(self, event) -> None:
        if isinstance(event, StepDone):
            times_s.append(event.compile_s)
        record(self, event)

    monkeypatch.setattr(BenchmarkSink, "record", keep)
    return times_s


@pytest.mark.parametrize("quick", [False, True])
def test_steps_are_captured_and_replayed(data, compile_times, monkeypatch, quick):
    replays = []
    replay = GraphedPass._replay
    monkeypatch.setattr(GraphedPass, "_replay", lambda self, *arguments: replays.append(0) or replay(self, *arguments))
    found = run_request(benchmark_request(data, "tiny", SMALL, quick=quick), None, [None])
    assert found.gpus > 0
    assert compile_times[0] > 0
    assert compile_times.count(0.0) > len(compile_times) / 2, "most steps only replay"
    assert len(replays) > len(compile_times) / 2
    assert found.tokens_per_s > 0
    assert found.update_s > 0


@pytest.mark.parametrize("recipe", ["tiny", "small", "transformer-base", "modern", "transformer-big"])
def test_every_recipe_reports_its_memory(data, recipe):
    sizes = ("batch.tokens=2000", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=256")
    found = run_request(benchmark_request(data, recipe, sizes, quick=True), None, [None])
    assert 4 * 4 * found.parameters < found.memory_peak_bytes < found.memory_bytes
    assert found.largest_micro_batch_tokens > 2000


def test_memory_is_free_after_a_benchmark(data):
    run_request(benchmark_request(data, "tiny", SMALL, quick=True), None, [None])
    assert torch.cuda.memory_allocated() < 100e6
    assert step_benchmark.peak_memory_bytes(torch.device("cuda", 0)) > 0
