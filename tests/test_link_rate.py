import pytest

from dragoman.link_rate import LONG_LATENCIES, measure_rate

LINE_BYTES_PER_S = 1e9
"""Of the bytes that a token bucket lets through at once."""


class ShapedLink:
    """A link with a token bucket, on a clock of its own. A message crosses it in parts that wait for each other."""

    def __init__(self, bytes_per_s: float, burst_bytes: float, delay_s: float, parts: int) -> None:
        self.bytes_per_s, self._burst_bytes, self._delay_s, self._parts = bytes_per_s, burst_bytes, delay_s, parts
        self._tokens = burst_bytes
        self.clock_s = 0.0
        self.sent: list[int] = []

    def send(self, size_bytes: int) -> float:
        """Send a message, and share its duration with the other end, which takes as long as an empty message."""
        self.sent.append(size_bytes)
        started_at_s = self.clock_s
        for _ in range(self._parts):
            self._tokens -= size_bytes / self._parts
            self._wait(size_bytes / self._parts / LINE_BYTES_PER_S)
            self._wait(max(0.0, -self._tokens / self.bytes_per_s))
            self._wait(self._delay_s)
        spent_s = self.clock_s - started_at_s
        self._wait(self.latency_s)
        return spent_s

    @property
    def latency_s(self) -> float:
        return self._parts * self._delay_s

    def _wait(self, seconds: float) -> None:
        self.clock_s += seconds
        self._tokens = min(self._burst_bytes, self._tokens + seconds * self.bytes_per_s)


@pytest.mark.parametrize("parts", [1, 2, 6])
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("burst_bytes", [0, 5_000, 65_536, 100_000, 1_000_000])
@pytest.mark.parametrize("bytes_per_s", [20_000, 175_000, 3e6, 5e7])
def test_neither_bursts_nor_latency_make_a_link_look_faster_or_slower(bytes_per_s, burst_bytes, delay_s, parts):
    link = ShapedLink(bytes_per_s, burst_bytes, delay_s, parts)
    measured = measure_rate(link.send, 1 << 14, 1 << 26, link.latency_s, long_s=0.15)
    assert measured == pytest.approx(bytes_per_s, rel=0.03)


def test_a_measurement_sends_little_more_than_it_needs():
    link = ShapedLink(175_000, burst_bytes=65_536, delay_s=0.05, parts=2)
    measure_rate(link.send, 1 << 14, 1 << 26, link.latency_s, long_s=0.15)
    assert sum(link.sent) / link.bytes_per_s < 15 * LONG_LATENCIES * link.latency_s


def test_messages_stop_growing_at_the_largest_size():
    sent: list[int] = []
    measure_rate(lambda size_bytes: sent.append(size_bytes) or 0.0, 10, 100, latency_s=0.0, long_s=0.5)
    assert max(sent) == 160
