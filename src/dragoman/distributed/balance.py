"""Load balance for unequal machines: each worker's share of the batch follows its speed, so that all finish together.

A worker's time has a part proportional to its share (compute) and a part that no share changes: the optimizer step, and
the overhead of a pass however few its tokens; a slow machine is slow at both. The first is measured, the second shows
when a share has changed. The gradient is exact for any shares, so rebalancing only costs the rebuilding of a few
batches. Times are smoothed, and shares move only where that saves time: noise must not move them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 7
"""Steps whose median counts: one slow step is noise, a slow machine is not."""
MIN_GAIN = 0.05
"""Shares change if the slowest worker takes this much longer than with other shares, or as much as times vary."""
MIN_SHARE = 0.02
"""Smallest share of a worker: without work its speed could not be measured any more."""
MAX_OVERHEAD = 0.7
"""Largest part of compute that is taken for overhead; more than that is noise."""


@dataclass(frozen=True)
class _Measurement:
    """Shares, and each worker's compute time with them."""

    shares: tuple[float, ...]
    compute_s: list[float]


class ShareBalancer:
    """The shares of all workers. Equal on every worker, because each sees the same times."""

    def __init__(self, shares: Sequence[float], *, adaptive: bool = False) -> None:
        self.shares = _normalized(shares)
        self._adaptive = adaptive
        self._window: list[tuple[list[float], list[float]]] = []
        self._previous: _Measurement | None = None
        """The measurement before the last change, while it is recent: later, machines may have changed."""

    def update(self, compute_s: Sequence[float], other_s: Sequence[float]) -> bool:
        """Add the times of a step: each worker's compute, and its other work until it was ready to exchange.

        Returns True if the shares have changed.
        """
        if not self._adaptive:
            return False
        self._window = [*self._window[1 - WINDOW :], (list(compute_s), list(other_s))]
        if len(self._window) < WINDOW:
            return False
        computing, other = zip(*self._window, strict=True)
        typical, fixed = _medians(computing), _medians(other)
        if min(typical) <= 0:
            return False
        now, previous = _Measurement(self.shares, typical), self._previous
        self._previous = None
        present = max(rest + compute for rest, compute in zip(fixed, typical, strict=True))
        overheads = _overheads(now, previous)
        per_batch = [
            (compute - overhead) / share
            for share, compute, overhead in zip(self.shares, typical, overheads, strict=True)
        ]
        fixed = [rest + overhead for rest, overhead in zip(fixed, overheads, strict=True)]
        shares = _equalizing_shares(per_batch, fixed)
        expected = max(rest + share * each for rest, share, each in zip(fixed, shares, per_batch, strict=True))
        if present < (1 + max(MIN_GAIN, _noise(computing, typical))) * expected:
            return False
        self.shares, self._previous = shares, now
        self._window = []  # Those times belong to the previous shares.
        return True


def _overheads(now: _Measurement, previous: _Measurement | None) -> list[float]:
    """Compute time of each worker that its share does not change: known after a change of shares, else 0."""
    if previous is None:
        return [0.0] * len(now.shares)
    overheads = []
    for share, compute, old_share, old_compute in zip(
        now.shares, now.compute_s, previous.shares, previous.compute_s, strict=True
    ):
        moved = share - old_share
        overhead = compute - share * (compute - old_compute) / moved if abs(moved) > 0.1 * share else 0.0
        overheads.append(overhead if 0 <= overhead <= MAX_OVERHEAD * compute else 0.0)
    return overheads


def _equalizing_shares(per_batch: Sequence[float], fixed: Sequence[float]) -> tuple[float, ...]:
    """The shares with which all workers are ready at the same time, from compute time a whole batch and fixed time.

    A worker that would be late even without a share gets the smallest one, and the others split the rest.
    """
    least = min(MIN_SHARE, 0.5 / len(per_batch))
    free = list(range(len(per_batch)))
    while True:
        left = 1 - least * (len(per_batch) - len(free))
        together = (left + sum(fixed[n] / per_batch[n] for n in free)) / sum(1 / per_batch[n] for n in free)
        shares = {n: (together - fixed[n]) / per_batch[n] for n in free}
        enough = [n for n in free if shares[n] >= least]
        if enough == free or not enough:
            return _normalized([max(shares.get(n, least), least) for n in range(len(per_batch))])
        free = enough


def _noise(steps: Sequence[Sequence[float]], typical: Sequence[float]) -> float:
    """Typical relative deviation of the least steady worker's times."""
    deviations = [[abs(compute - middle) for compute, middle in zip(step, typical, strict=True)] for step in steps]
    return max(deviation / middle for deviation, middle in zip(_medians(deviations), typical, strict=True))


def _normalized(shares: Sequence[float]) -> tuple[float, ...]:
    total = sum(shares)
    return tuple(share / total for share in shares)


def _medians(steps: Sequence[Sequence[float]]) -> list[float]:
    """The median of each worker."""
    return [sorted(values)[len(values) // 2] for values in zip(*steps, strict=True)]
