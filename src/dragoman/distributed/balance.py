"""Load balancing of unequal machines: each worker's share of the batch follows its speed, so that all finish together.

A worker's time has a part proportional to its share (compute) and a fixed part: the optimizer step, and the overhead of
a forward and backward pass, however few its tokens. A slow machine is slow at both. Compute and optimizer time are
measured; the overhead follows from two measurements with different shares. The gradient is exact for any shares, so
rebalancing only costs the rebuilding of a few batches. Times are smoothed, and shares change only if that saves time:
noise must not change them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 7
"""Steps whose median is used: one slow step is noise, a slow machine is not."""
MIN_GAIN = 0.05
"""Minimum gain for a change of shares, as a fraction of the step time. If times vary by more, their variation."""
MIN_SHARE = 0.02
"""Smallest share of a worker: without work, its speed could no longer be measured."""
MAX_OVERHEAD = 0.7
"""Largest plausible fraction of overhead in compute time; a larger estimate is noise."""


@dataclass(frozen=True)
class _Measurement:
    """Shares, and each worker's compute time with them."""

    shares: tuple[float, ...]
    compute_s: list[float]


class ShareBalancer:
    """The shares of all workers. Equal on every worker, because all use the same measurements."""

    def __init__(self, shares: Sequence[float], *, adaptive: bool = False) -> None:
        self.shares = _normalized(shares)
        self._adaptive = adaptive
        self._window: list[tuple[list[float], list[float]]] = []
        self._previous: _Measurement | None = None
        """The measurement before the last change; used only once, because machines may change later."""

    def update(self, compute_s: Sequence[float], other_s: Sequence[float]) -> bool:
        """Add the times of a step: each worker's compute, and its other work until it was ready to exchange.

        Returns True if the shares have changed.
        """
        if not self._adaptive:
            return False
        self._window = [*self._window[1 - WINDOW :], (list(compute_s), list(other_s))]
        if len(self._window) < WINDOW:
            return False
        computes_s, others_s = zip(*self._window, strict=True)
        median_s, fixed_s = _medians(computes_s), _medians(others_s)
        if min(median_s) <= 0:
            return False
        now, previous = _Measurement(self.shares, median_s), self._previous
        self._previous = None
        present_s = max(rest + compute for rest, compute in zip(fixed_s, median_s, strict=True))
        overheads_s = _overheads(now, previous)
        batch_s = [  # Compute time of each worker for a whole batch.
            (compute - overhead) / share
            for share, compute, overhead in zip(self.shares, median_s, overheads_s, strict=True)
        ]
        fixed_s = [rest + overhead for rest, overhead in zip(fixed_s, overheads_s, strict=True)]
        shares = _equalizing_shares(batch_s, fixed_s)
        expected_s = max(rest + share * each for rest, share, each in zip(fixed_s, shares, batch_s, strict=True))
        if present_s < (1 + max(MIN_GAIN, _noise(computes_s, median_s))) * expected_s:
            return False
        self.shares, self._previous = shares, now
        self._window = []  # Those times belong to the previous shares.
        return True


def _overheads(now: _Measurement, previous: _Measurement | None) -> list[float]:
    """Compute time of each worker that does not depend on its share; 0 without an earlier measurement."""
    if previous is None:
        return [0.0] * len(now.shares)
    overheads_s = []
    for share, compute, old_share, old_compute in zip(
        now.shares, now.compute_s, previous.shares, previous.compute_s, strict=True
    ):
        moved = share - old_share
        overhead = compute - share * (compute - old_compute) / moved if abs(moved) > 0.1 * share else 0.0
        overheads_s.append(overhead if 0 <= overhead <= MAX_OVERHEAD * compute else 0.0)
    return overheads_s


def _equalizing_shares(batch_s: Sequence[float], fixed_s: Sequence[float]) -> tuple[float, ...]:
    """The shares with which all workers are ready at the same time, from compute time per batch and fixed time.

    A worker that would be late even without a share gets the smallest one, and the others split the rest.
    """
    least = min(MIN_SHARE, 0.5 / len(batch_s))
    free = list(range(len(batch_s)))
    while True:
        left = 1 - least * (len(batch_s) - len(free))
        ready_s = (left + sum(fixed_s[n] / batch_s[n] for n in free)) / sum(1 / batch_s[n] for n in free)
        shares = {n: (ready_s - fixed_s[n]) / batch_s[n] for n in free}
        enough = [n for n in free if shares[n] >= least]
        if enough == free or not enough:
            return _normalized([max(shares.get(n, least), least) for n in range(len(batch_s))])
        free = enough


def _noise(steps: Sequence[Sequence[float]], median_s: Sequence[float]) -> float:
    """Median relative deviation of the times of the worker with the noisiest times."""
    deviations = [[abs(compute - middle) for compute, middle in zip(step, median_s, strict=True)] for step in steps]
    return max(deviation / middle for deviation, middle in zip(_medians(deviations), median_s, strict=True))


def _normalized(shares: Sequence[float]) -> tuple[float, ...]:
    total = sum(shares)
    return tuple(share / total for share in shares)


def _medians(steps: Sequence[Sequence[float]]) -> list[float]:
    """The median over all steps, for each worker."""
    return [sorted(values)[len(values) // 2] for values in zip(*steps, strict=True)]
