"""The rate limit per client."""

import pytest

from dragoman.serving.access_control import MAX_TRACKED_CLIENTS, RateLimiter


def test_a_client_can_send_one_minute_s_requests_at_once_and_then_waits() -> None:
    now = [0.0]
    rate_limiter = RateLimiter(6, lambda: now[0])
    assert [rate_limiter.acquire("a") for _ in range(6)] == [0.0] * 6
    assert rate_limiter.acquire("a") == pytest.approx(10)
    assert rate_limiter.acquire("b") == 0, "other clients are not affected"
    now[0] = 9.0
    assert rate_limiter.acquire("a") == pytest.approx(1)
    now[0] = 10.0
    assert rate_limiter.acquire("a") == 0
    now[0] = 10_000.0
    assert [rate_limiter.acquire("a") == 0 for _ in range(7)] == [True] * 6 + [False], (
        "at most one minute's requests accumulate"
    )


def test_the_number_of_tracked_clients_is_bounded() -> None:
    rate_limiter = RateLimiter(6)
    for number in range(MAX_TRACKED_CLIENTS + 500):
        rate_limiter.acquire(str(number))
    assert len(rate_limiter._buckets) == MAX_TRACKED_CLIENTS
