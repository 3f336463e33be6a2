"""Unequal machines: each worker's share of the batch follows its speed, so that all finish together.

The gradient is exact for any shares, so that following costs nothing but the making of some batches anew. Speeds are
smoothed, and shares move only when that saves something: noise should not.
"""

from collections.abc import Sequence

MEMORY = 7
"""Steps of which the median counts: one slow step is noise, a slow machine is not."""
WORTH = 0.05
"""Shares follow when the slowest worker takes this much longer than it would with others, or twice the noise."""
LEAST = 0.02
"""Smallest share of a worker: without work its speed could not be seen any more."""


class Balance:
    """The shares of all workers, the same on each of them because it sees the same times."""

    def __init__(self, shares: Sequence[float], *, follows: bool = False) -> None:
        self.shares = _normalised(shares)
        self._follows = follows
        self._seen: list[list[float]] = []

    def follow(self, seconds: Sequence[float]) -> bool:
        """Take in how long each worker computed in a step. Says whether the shares have changed."""
        if not self._follows:
            return False
        self._seen = [*self._seen[1 - MEMORY :], list(seconds)]
        if len(self._seen) < MEMORY:
            return False
        usual = [_median([step[worker] for step in self._seen]) for worker in range(len(self.shares))]
        if min(usual) <= 0:
            return False
        speeds = [share / spent for share, spent in zip(self.shares, usual, strict=True)]
        shares = _normalised([max(speed / sum(speeds), LEAST) for speed in speeds])
        expected = max(share / speed for share, speed in zip(shares, speeds, strict=True))
        if max(usual) < (1 + max(WORTH, 2 * self._noise(usual))) * expected:
            return False
        self.shares = shares
        self._seen = []  # Those times belong to the shares before.
        return True

    def _noise(self, usual: Sequence[float]) -> float:
        """How far from its usual time the least steady worker typically is, as a part of that time."""
        return max(
            _median([abs(step[worker] - middle) for step in self._seen]) / middle for worker, middle in enumerate(usual)
        )


def _normalised(shares: Sequence[float]) -> tuple[float, ...]:
    total = sum(shares)
    return tuple(share / total for share in shares)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
