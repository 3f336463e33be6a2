"""Unequal machines: each worker's share of the batch follows its speed, so that all finish together.

A worker's time is what its share takes to compute, and what no share changes: the update of the weights, and what
going through the model takes however few the tokens; a slow machine does both slowly too. The first is measured, the
second shows when a share has changed. The gradient is exact for any shares, so that following costs nothing but the
making of some batches anew. Times are smoothed, and shares move only when that saves something: noise should not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = 7
"""Steps of which the median counts: one slow step is noise, a slow machine is not."""
WORTH = 0.05
"""Shares follow when the slowest worker takes this much longer than it would with others, or as much as times vary."""
LEAST = 0.02
"""Smallest share of a worker: without work its speed could not be seen any more."""
MOST_FIXED = 0.7
"""Part of computing that may be taken to come with every share; more than that is noise."""


@dataclass(frozen=True)
class _Level:
    """Shares, and how long each worker computed with them."""

    shares: tuple[float, ...]
    compute_s: list[float]


class Balance:
    """The shares of all workers, the same on each of them because it sees the same times."""

    def __init__(self, shares: Sequence[float], *, follows: bool = False) -> None:
        self.shares = _normalised(shares)
        self._follows = follows
        self._seen: list[tuple[list[float], list[float]]] = []
        self._before: _Level | None = None
        """What was left just now: later on, machines may have changed since."""

    def follow(self, compute_s: Sequence[float], rest_s: Sequence[float]) -> bool:
        """Take in how long each worker computed in a step, and what else it did before it was ready to exchange.

        Says whether the shares have changed.
        """
        if not self._follows:
            return False
        self._seen = [*self._seen[1 - MEMORY :], (list(compute_s), list(rest_s))]
        if len(self._seen) < MEMORY:
            return False
        computing, resting = zip(*self._seen, strict=True)
        usual, fixed = _medians(computing), _medians(resting)
        if min(usual) <= 0:
            return False
        now, before = _Level(self.shares, usual), self._before
        self._before = None
        present = max(rest + spent for rest, spent in zip(fixed, usual, strict=True))
        starts = _starts(now, before)
        whole = [(spent - start) / share for share, spent, start in zip(self.shares, usual, starts, strict=True)]
        fixed = [rest + start for rest, start in zip(fixed, starts, strict=True)]
        shares = _level(whole, fixed)
        expected = max(rest + share * each for rest, share, each in zip(fixed, shares, whole, strict=True))
        if present < (1 + max(WORTH, _noise(computing, usual))) * expected:
            return False
        self.shares, self._before = shares, now
        self._seen = []  # Those times belong to the shares before.
        return True


def _starts(now: _Level, before: _Level | None) -> list[float]:
    """What each worker's computing takes whatever its share: known where the share has just changed, else nothing."""
    if before is None:
        return [0.0] * len(now.shares)
    starts = []
    for share, spent, old_share, old_spent in zip(
        now.shares, now.compute_s, before.shares, before.compute_s, strict=True
    ):
        moved = share - old_share
        start = spent - share * (spent - old_spent) / moved if abs(moved) > 0.1 * share else 0.0
        starts.append(start if 0 <= start <= MOST_FIXED * spent else 0.0)
    return starts


def _level(whole: Sequence[float], fixed: Sequence[float]) -> tuple[float, ...]:
    """The shares with which all are ready at the same time: each has its fixed time, and its share of the whole.

    Whoever would be late even without a share gets the smallest one, and the others level the rest.
    """
    least = min(LEAST, 0.5 / len(whole))
    free = list(range(len(whole)))
    while True:
        left = 1 - least * (len(whole) - len(free))
        together = (left + sum(fixed[n] / whole[n] for n in free)) / sum(1 / whole[n] for n in free)
        shares = {n: (together - fixed[n]) / whole[n] for n in free}
        enough = [n for n in free if shares[n] >= least]
        if enough == free or not enough:
            return _normalised([max(shares.get(n, least), least) for n in range(len(whole))])
        free = enough


def _noise(steps: Sequence[Sequence[float]], usual: Sequence[float]) -> float:
    """How far from its usual time the least steady worker typically is, as a part of that time."""
    away = [[abs(spent - middle) for spent, middle in zip(step, usual, strict=True)] for step in steps]
    return max(distance / middle for distance, middle in zip(_medians(away), usual, strict=True))


def _normalised(shares: Sequence[float]) -> tuple[float, ...]:
    total = sum(shares)
    return tuple(share / total for share in shares)


def _medians(steps: Sequence[Sequence[float]]) -> list[float]:
    """Of each worker."""
    return [sorted(values)[len(values) // 2] for values in zip(*steps, strict=True)]
