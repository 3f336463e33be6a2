from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.distributed.balance import LEAST, WORTH, Balance

speeds_of_machines = st.lists(st.floats(1.0, 4.0), min_size=2, max_size=4)


def train(
    balance: Balance, speeds: Sequence[float], steps: int, noise: Callable[[], float] = lambda: 1.0, update: float = 0.0
) -> list[tuple[float, ...]]:
    """Let workers of these speeds take steps, with an update of this much work. Gives the shares of each change."""
    changes = []
    for _ in range(steps):
        seconds = [noise() * share / speed for share, speed in zip(balance.shares, speeds, strict=True)]
        if balance.follow(seconds, [update / speed for speed in speeds]):
            changes.append(balance.shares)
    return changes


def slowest_s(shares: Sequence[float], speeds: Sequence[float]) -> float:
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


@given(st.lists(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=3), min_size=1, max_size=40))
def test_whatever_is_measured_shares_are_positive_and_make_a_whole(steps):
    balance = Balance([1.0, 2.0, 3.0], follows=True)
    for seconds in steps:
        balance.follow(seconds, seconds[::-1])
        assert sum(balance.shares) == pytest.approx(1)
        assert min(balance.shares) >= LEAST / 1.1


@given(speeds_of_machines, st.data())
def test_a_machine_that_slows_to_a_third_gets_its_new_share_within_20_steps(speeds, data):
    balance = Balance([1.0] * len(speeds), follows=True)
    train(balance, speeds, 20)
    slow = data.draw(st.integers(0, len(speeds) - 1))
    speeds[slow] /= 3
    assert train(balance, speeds, 20)
    assert slowest_s(balance.shares, speeds) <= (1 + WORTH) / sum(speeds)


@given(speeds_of_machines, st.data())
def test_small_noise_moves_nothing(speeds, data):
    shares = [speed / sum(speeds) for speed in speeds]
    balance = Balance(shares, follows=True)
    noise = st.floats(0.98, 1.02)
    assert train(balance, speeds, 15, lambda: data.draw(noise)) == []
    assert balance.shares == pytest.approx(shares)


@given(st.lists(st.floats(1.0, 4.0), min_size=2, max_size=3), st.floats(0.0, 0.1))
def test_what_every_share_takes_is_learnt_from_one_change(speeds, start):
    """Two changes at most bring all to the same time, where computing is a start and a share."""
    balance = Balance([1.0] * len(speeds), follows=True)
    changes = 0
    for _ in range(21):
        seconds = [(start + share) / speed for share, speed in zip(balance.shares, speeds, strict=True)]
        changes += balance.follow(seconds, [0.0] * len(speeds))
    ready = [(start + share) / speed for share, speed in zip(balance.shares, speeds, strict=True)]
    assert changes <= 2
    assert max(ready) <= (1 + WORTH) * (1 + len(speeds) * start) / sum(speeds) + 1e-9


def test_one_slow_step_is_no_slow_machine():
    balance = Balance([1, 1], follows=True)
    train(balance, [1, 1], 10)
    assert not balance.follow([5.0, 0.5], [0.0, 0.0])
    assert train(balance, [1, 1], 10) == []


def test_equal_machines_with_unequal_shares_get_equal_ones():
    balance = Balance([3, 1], follows=True)
    assert train(balance, [1, 1], 10) == [pytest.approx((0.5, 0.5))]


def test_shares_that_were_set_stay_as_they_are():
    balance = Balance([3, 1])
    assert train(balance, [1, 4], 50) == []
    assert balance.shares == (0.75, 0.25)


def test_a_machine_that_is_too_slow_for_the_smallest_share_gets_it_once():
    balance = Balance([1, 1], follows=True)
    assert len(train(balance, [1000, 1], 100)) == 1
    assert balance.shares[1] == pytest.approx(LEAST, rel=0.1)


@given(speeds_of_machines, st.floats(0.0, 0.2))
def test_all_are_ready_at_the_same_time_though_slow_machines_update_slowly_too(speeds, update):
    balance = Balance([1.0] * len(speeds), follows=True)
    train(balance, speeds, 30, update=update)
    ready = [(share + update) / speed for share, speed in zip(balance.shares, speeds, strict=True)]
    assert max(ready) <= (1 + WORTH) * (1 + len(speeds) * update) / sum(speeds) or min(balance.shares) < 1.1 * LEAST
