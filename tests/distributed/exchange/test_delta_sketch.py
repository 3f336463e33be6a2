import pytest
import torch
from benchmarks.simulated_workers import SimulatedCluster, SimulatedWorld
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.distributed.exchange.delta_sketch import SKETCH_SIZE, DeltaSketch, norm_ratio
from dragoman.distributed.exchange.local_steps import LocalSteps
from dragoman.distributed.exchange.step_length import step_length_ratio
from dragoman.distributed.step_stats import StepStats

CPU = torch.device("cpu")


def random_deltas(workers: int, length: int, noise: float, seed: int) -> Tensor:
    """Changes with a common part, [workers, length]."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(length, generator=generator)
    return common + noise * torch.randn(workers, length, generator=generator)


def exact_ratio(deltas: Tensor) -> float:
    return float(deltas.mean(0).square().sum() / deltas.square().sum(1).mean())


def estimated_ratio(deltas: Tensor) -> float | None:
    sketch = DeltaSketch(deltas.shape[1], CPU)
    return norm_ratio(torch.stack([sketch.of(delta) for delta in deltas]).sum(0), len(deltas))


@given(workers=st.integers(2, 16), length=st.integers(1, 3000), noise=st.floats(0, 100), seed=st.integers(0, 99))
def test_the_ratio_has_the_range_of_a_mean_of_vectors(workers: int, length: int, noise: float, seed: int) -> None:
    ratio = estimated_ratio(random_deltas(workers, length, noise, seed))
    assert ratio is not None
    assert 0 <= ratio <= 1 + 1e-5


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0, 10.0])
def test_the_part_in_which_changes_differ_is_estimated_well(workers: int, noise: float) -> None:
    examples = [random_deltas(workers, 20_000, noise, seed) for seed in range(40)]
    exact = sum(1 - exact_ratio(each) for each in examples)
    estimated = sum(1 - (estimated_ratio(each) or 0.0) for each in examples)
    assert estimated == pytest.approx(exact, rel=0.1)


def test_the_rows_of_a_matrix_of_rank_one_are_told_apart() -> None:
    """They would fall together if the projections took every 64th value."""
    generator = torch.Generator().manual_seed(3)
    ratios = []
    for _ in range(40):
        deltas = torch.stack([torch.outer(*torch.randn(2, 128, generator=generator)).flatten() for _ in range(2)])
        ratios.append((exact_ratio(deltas), estimated_ratio(deltas) or 0.0))
    exact, estimated = (sum(each) / len(ratios) for each in zip(*ratios, strict=True))
    assert estimated == pytest.approx(exact, abs=0.05)


def test_no_change_has_no_ratio() -> None:
    assert norm_ratio(torch.zeros(SKETCH_SIZE), 4) is None


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("overlap", [1, 3])
def test_the_learning_rate_factor_does_not_depend_on_the_wire_format(workers: int, overlap: int) -> None:
    """Rounding adds noise to the mean, which must not hide that the workers' changes differ."""
    every, length, noise = 6, 30_000, 0.2

    def learn(wire_format: str) -> float:
        def work(cluster: SimulatedCluster) -> float:
            weights, zeros = nn.Parameter(torch.zeros(length)), [0.0] * workers
            exchange = LocalSteps(cluster, [weights], every, wire_format, 1.0, 0.0, overlap=overlap)
            common, own = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2 + cluster.rank)
            for _ in range(300):
                exchange.all_reduce(StepStats(torch.zeros(2), 1, zeros, zeros), workers)
                with torch.no_grad():
                    weights += torch.randn(length, generator=common) + noise * torch.randn(length, generator=own)
                exchange.synchronize(flush=False)
            exchange.synchronize(flush=True)
            return exchange.learning_rate_factor

        return SimulatedWorld(workers).run(work, CPU)[0]

    ratio = (1 + noise**2 / workers) / (1 + noise**2)
    expected = step_length_ratio(ratio, workers, 19 + every)
    assert 1.1 < expected < 0.9 * workers**0.5, "neither limit would show a difference"
    for wire_format in ("bf16", "int8", "int4", "int2"):
        assert learn(wire_format) == pytest.approx(expected, rel=0.08), wire_format
