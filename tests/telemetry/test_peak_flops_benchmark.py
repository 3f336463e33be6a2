import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.telemetry.peak_flops_benchmark import MAX_ROUNDS, WARM_UP_S, find_shortest_time, measure_peak


class SimulatedDevice:
    """A device whose first product loads libraries, whose clocks rise slowly, and whose products scatter."""

    def __init__(self, product_s: float, first_s: float, rise_s: float, scatter: list[float]) -> None:
        self.product_s, self.first_s, self.rise_s, self.scatter = product_s, first_s, rise_s, scatter
        self.elapsed_s, self.calls = 0.0, 0

    def time_products(self, count: int) -> float:
        slowness = 1 + 3 * max(0.0, 1 - self.elapsed_s / self.rise_s)
        spent_s = count * self.product_s * slowness * (1 + self.scatter[self.calls % len(self.scatter)])
        if self.calls == 0:
            spent_s += self.first_s
        self.calls += 1
        if self.calls > 1:
            self.elapsed_s += spent_s
        return spent_s


@given(
    st.floats(0.0005, 0.2),
    st.floats(0, 0.2),
    st.floats(0.01, 0.2),
    st.lists(st.floats(0, 0.02), min_size=1, max_size=9),
)
def test_the_peak_of_a_sleeping_gpu_is_that_of_the_warm_one(product_s, first_s, rise_s, scatter):
    device = SimulatedDevice(product_s, first_s, rise_s, scatter)
    found_s, spread = find_shortest_time(device.time_products, WARM_UP_S["cuda"])
    assert product_s * 0.999 <= found_s <= 1.021 * product_s
    assert spread <= 0.03


def test_a_first_product_that_takes_longer_than_the_warm_up_does_not_count():
    device = SimulatedDevice(0.0014, 0.5, 0.001, [0.0])
    assert find_shortest_time(device.time_products, WARM_UP_S["cuda"])[0] == pytest.approx(0.0014)


def test_scattered_measurements_are_repeated_and_their_spread_is_told():
    scatter = [0.2 * n for n in range(40)]
    device = SimulatedDevice(0.01, 0.0, 0.001, scatter)
    _, spread = find_shortest_time(device.time_products, 0.0)
    assert spread > 0.2
    assert device.calls == 2 + MAX_ROUNDS


def test_a_cpu_is_measured():
    measured = measure_peak(torch.float32, torch.device("cpu"))
    assert measured.flops_per_s > 1e8
    assert (measured.device, measured.precision) == ("CPU", "fp32")
