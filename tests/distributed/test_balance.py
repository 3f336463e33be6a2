from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.balance import MIN_GAIN, MIN_SHARE, ShareBalancer

speeds_of_machines = st.lists(st.floats(1.0, 4.0), min_size=2, max_size=4)


def train(
    balancer: ShareBalancer,
    speeds: Sequence[float],
    steps: int,
    noise: Callable[[], float] = lambda: 1.0,
    update: float = 0.0,
) -> list[tuple[float, ...]]:
    """Simulate steps of workers with these speeds and update times. Returns the shares after each change."""
    changes = []
    for _ in range(steps):
        seconds = [noise() * share / speed for share, speed in zip(balancer.shares, speeds, strict=True)]
        if balancer.update(seconds, [update / speed for speed in speeds]):
            changes.append(balancer.shares)
    return changes


def slowest_s(shares: Sequence[float], speeds: Sequence[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


@given(st.lists(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3), min_size=1, max_size=40))
def test_shares_are_positive_and_sum_to_one_for_any_times(steps):
    balancer = ShareBalancer([1.0, 2.0, 3.0], adaptive=True)
    for seconds in steps:
        balancer.update(seconds, seconds[::-1])
        assert sum(balancer.shares) == pytest.approx(1)
        assert min(balancer.shares) >= MIN_SHARE / 1.1


@given(speeds_of_machines, st.data())
def test_a_machine_that_slows_to_a_third_gets_its_new_share_within_20_steps(speeds, data):
    balancer = ShareBalancer([1.0] * len(speeds), adaptive=True)
    train(balancer, speeds, 20)
    slow = data.draw(st.integers(0, len(speeds) - 1))
    speeds[slow] /= 3
    assert train(balancer, speeds, 20)
    assert slowest_s(balancer.shares, speeds) <= (1 + MIN_GAIN) / sum(speeds)


@given(speeds_of_machines, st.data())
def test_small_noise_does_not_change_shares(speeds, data):
    shares = [speed / sum(speeds) for speed in speeds]
    balancer = ShareBalancer(shares, adaptive=True)
    noise = st.floats(0.98, 1.02)
    assert train(balancer, speeds, 15, lambda: data.draw(noise)) == []
    assert balancer.shares == pytest.approx(shares)


@given(st.lists(st.floats(1.0, 4.0), min_size=2, max_size=3), st.floats(0.0, 0.1))
def test_the_overhead_of_a_pass_is_estimated_from_one_change(speeds, overhead):
    """Compute time is an overhead plus a part proportional to the share: two changes equalise the times."""
    balancer = ShareBalancer([1.0] * len(speeds), adaptive=True)
    changes = 0
    for _ in range(21):
        seconds = [(overhead + share) / speed for share, speed in zip(balancer.shares, speeds, strict=True)]
        changes += balancer.update(seconds, [0.0] * len(speeds))
    ready = [(overhead + share) / speed for share, speed in zip(balancer.shares, speeds, strict=True)]
    assert changes <= 2
    assert max(ready) <= (1 + MIN_GAIN) * (1 + len(speeds) * overhead) / sum(speeds) + 1e-9


def test_one_slow_step_does_not_change_shares():
    balancer = ShareBalancer([1, 1], adaptive=True)
    train(balancer, [1, 1], 10)
    assert not balancer.update([5.0, 0.5], [0.0, 0.0])
    assert train(balancer, [1, 1], 10) == []


def test_equal_machines_with_unequal_shares_get_equal_ones():
    balancer = ShareBalancer([3, 1], adaptive=True)
    assert train(balancer, [1, 1], 10) == [pytest.approx((0.5, 0.5))]


def test_fixed_shares_do_not_change():
    balancer = ShareBalancer([3, 1])
    assert train(balancer, [1, 4], 50) == []
    assert balancer.shares == (0.75, 0.25)


def test_a_machine_too_slow_for_the_smallest_share_still_gets_it():
    balancer = ShareBalancer([1, 1], adaptive=True)
    assert len(train(balancer, [1000, 1], 100)) == 1
    assert balancer.shares[1] == pytest.approx(MIN_SHARE, rel=0.1)


@given(speeds_of_machines, st.floats(0.0, 0.2))
def test_workers_are_ready_together_although_slow_machines_also_update_slowly(speeds, update):
    balancer = ShareBalancer([1.0] * len(speeds), adaptive=True)
    train(balancer, speeds, 30, update=update)
    ready = [(share + update) / speed for share, speed in zip(balancer.shares, speeds, strict=True)]
    assert (
        max(ready) <= (1 + MIN_GAIN) * (1 + len(speeds) * update) / sum(speeds)
        or min(balancer.shares) < 1.1 * MIN_SHARE
    )
