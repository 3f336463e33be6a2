"""The rate that a link sustains, measured with messages of growing size, whatever carries them."""

from collections.abc import Callable

LONG_LATENCIES = 3
"""Added bytes that show the rate of a link take at least as many latencies: while the messages of a measurement wait
for each other, for about two latencies, token buckets on the path fill again, and a smaller message would fit in."""


def measure_rate(
    send: Callable[[int], float], first_bytes: int, most_bytes: int, latency_s: float, long_s: float
) -> float:
    """Bytes per second that a link sustains. `send` sends a message of a size and returns its duration.

    It is the difference of two messages, one twice as large as the other: what they have in common, the latency and the
    bytes that token buckets and buffers on the path take at once, cancels.
    """
    long_s = max(long_s, LONG_LATENCIES * latency_s)
    size_bytes, _ = _grow_message(send, first_bytes, most_bytes, long_s)

    def send_twice(size_bytes: int) -> float:
        return min(send(size_bytes), send(size_bytes))  # Lost packets and other programs only delay messages.

    # Once more from this size: buckets that were full for the first messages are as empty for all of these.
    size_bytes, added_s = _grow_message(send_twice, size_bytes, most_bytes, long_s)
    return size_bytes / max(added_s, 1e-6)


def _grow_message(send: Callable[[int], float], size_bytes: int, most_bytes: int, long_s: float) -> tuple[int, float]:
    """The size of a message that takes `long_s` longer if it is twice as large, and how much longer that took."""
    before_s = send(size_bytes)
    while (added_s := (spent_s := send(2 * size_bytes)) - before_s) < long_s and 2 * size_bytes < most_bytes:
        size_bytes, before_s = 2 * size_bytes, spent_s
    return size_bytes, added_s
