"""The batch plan: the pairs of each batch, a pure function of the lengths, the token budget, the seed and the epoch.

Every worker computes the same plan and takes its share of each batch. So the data state of a run is two integers
(epoch, batch), and the loss curve does not depend on the number of workers or on the shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.errors import DragomanError

Lengths = npt.NDArray[np.int32]
Indexes = npt.NDArray[np.int64]

BUCKET_GROWTH = 1.1
"""Pairs whose longer sides differ by less than this factor share a length bucket and are shuffled together."""


@dataclass(frozen=True)
class Plan:
    """The global batches of one epoch."""

    order: npt.NDArray[np.int32]
    """Pair indexes, batch after batch."""
    bounds: Indexes
    """Batch b is `order[bounds[b]:bounds[b + 1]]`; [batches + 1]."""
    sequence: Indexes
    """The order in which the batches are taken."""

    def __len__(self) -> int:
        return len(self.sequence)

    def __getitem__(self, position: int) -> Indexes:
        """Pair indexes of the batch at a position of the epoch."""
        batch = self.sequence[position]
        return self.order[self.bounds[batch] : self.bounds[batch + 1]].astype(np.int64)


def plan_epoch(
    lengths: Lengths, tokens: int, seed: int, epoch: int, chosen: npt.NDArray[np.int32] | None = None
) -> Plan:
    """Batches of at most `tokens` source and `tokens` target tokens, of pairs of similar length, in random order.

    `lengths` is [pairs, 2]: source and target tokens. `chosen` are the indexes of the pairs to use, in any order and
    number; without them, every pair occurs once.
    """
    if len(lengths) == 0:
        raise DragomanError("The data set has no training pairs: prepare it with more text.")
    longest = int(lengths.max())  # Of all pairs: a run must not fail in the epoch that a long one is chosen for.
    if tokens < longest:
        raise DragomanError(
            f"batch.tokens = {tokens} is smaller than the longest sentence ({longest} tokens): raise it to {longest} "
            "or more, or prepare the data with a lower cleaning.max_tokens."
        )
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(lengths if chosen is None else chosen)).astype(np.int32)
    if chosen is not None:
        shuffled = chosen[shuffled]
    buckets = _bucket_table(longest)[lengths.max(axis=1)[shuffled]]
    order = shuffled[np.argsort(buckets, kind="stable")]  # On 16-bit keys a radix sort, in linear time.
    bounds = batch_bounds(lengths[order], tokens)
    return Plan(order, bounds, random.permutation(len(bounds) - 1))


def _bucket_table(longest: int) -> npt.NDArray[np.uint16]:
    """The bucket of each length up to the longest."""
    sizes = np.maximum(np.arange(longest + 1), 1)
    buckets: npt.NDArray[np.uint16] = np.floor(np.log(sizes) / np.log(BUCKET_GROWTH)).astype(np.uint16)
    return buckets


def batch_bounds(lengths: Lengths, tokens: int) -> Indexes:
    """Bounds, [batches + 1], of consecutive batches that are each as full as `tokens` a side allow.

    `tokens` must be at least the longest sentence.
    """
    source, target = (_starts(lengths[:, side]) for side in (0, 1))
    bounds = [0]
    while bounds[-1] < len(lengths):
        start = bounds[-1]
        end = min(
            int(np.searchsorted(source, source[start] + tokens, side="right")),
            int(np.searchsorted(target, target[start] + tokens, side="right")),
        )
        bounds.append(end - 1)
    return np.array(bounds, np.int64)


def _starts(lengths: Lengths) -> Indexes:
    """The position of each sentence in the concatenation of all, and the end of the last, [sentences + 1]."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    starts[1:] = lengths
    # A sum that also converts its input holds the GIL: over 80 million pairs longer than a heartbeat may be late.
    return np.cumsum(starts, out=starts)


def share(batch: Indexes, lengths: Lengths | Indexes, shares: Sequence[float], rank: int) -> Indexes:
    """The pairs of a batch that one worker computes, in proportion to `shares`.

    Pairs are assigned from the longest to the shortest, each to the worker that is furthest below its share. So every
    worker gets the same mix of lengths, and its tokens differ from its share by at most one sentence.
    """
    if len(shares) == 1:
        return batch
    assigned: Indexes = batch[assign(lengths[batch].sum(axis=1), shares) == rank]
    return assigned


def assign(sizes: npt.NDArray[np.integer], shares: Sequence[float]) -> npt.NDArray[np.int64]:
    """The worker of each item."""
    fractions = _normalize(shares)
    missing = [0.0] * len(fractions)  # tokens that each worker is below its share
    workers = np.empty(len(sizes), np.int64)
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[item])
        missing = [tokens + fraction * size for tokens, fraction in zip(missing, fractions, strict=True)]
        worker = missing.index(max(missing))
        missing[worker] -= size
        workers[item] = worker
    return workers


def _normalize(shares: Sequence[float]) -> list[float]:
    total = sum(shares)
    if not shares or min(shares) < 0 or not 0 < total < float("inf"):
        raise DragomanError(
            f"training.shares = {list(shares)} cannot split a batch: give numbers of at least 0, one of them above 0."
        )
    return [part / total for part in shares]
