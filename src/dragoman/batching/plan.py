"""Which pairs make which batch: a pure function of the lengths, the budget, the seed and the epoch.

Every worker computes the same plan and takes its share of each batch. So the data state of a run is two integers
(epoch, batch), and the loss curve does not depend on how many workers there are or how the batch is split.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dragoman.errors import DragomanError

Lengths = npt.NDArray[np.int32]
Indexes = npt.NDArray[np.int64]

BUCKET_GROWTH = 1.1
"""Pairs whose longer sides differ by less than this factor count as equally long, and are mixed at random."""


@dataclass(frozen=True)
class Plan:
    """The global batches of one epoch: every pair once."""

    order: npt.NDArray[np.int32]
    """Pairs, batch after batch."""
    bounds: Indexes
    """Batch b is `order[bounds[b]:bounds[b + 1]]`; [batches + 1]."""
    sequence: Indexes
    """The order in which the batches are taken."""

    def __len__(self) -> int:
        return len(self.sequence)

    def __getitem__(self, position: int) -> Indexes:
        """The pairs of the batch at a position of the epoch."""
        batch = self.sequence[position]
        return self.order[self.bounds[batch] : self.bounds[batch + 1]].astype(np.int64)


def plan_epoch(lengths: Lengths, tokens: int, seed: int, epoch: int) -> Plan:
    """Batches of at most `tokens` source and `tokens` target tokens, of pairs of similar length, in random order.

    `lengths` is [pairs, 2]: source and target tokens.
    """
    if len(lengths) == 0:
        raise DragomanError("There are no pairs to plan batches of: prepare a data set with more text.")
    longest = int(lengths.max())
    if tokens < longest:
        raise DragomanError(
            f"batch.tokens = {tokens} is smaller than the longest sentence ({longest} tokens): raise it to {longest} "
            "or more, or prepare the data with a lower cleaning.max_tokens."
        )
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(lengths)).astype(np.int32)
    buckets = _bucket_table(longest)[lengths.max(axis=1)[shuffled]]
    order = shuffled[np.argsort(buckets, kind="stable")]  # Stable on 16-bit keys is a radix sort: linear time.
    bounds = fill(lengths[order], tokens)
    return Plan(order, bounds, random.permutation(len(bounds) - 1))


def _bucket_table(longest: int) -> npt.NDArray[np.uint16]:
    """The bucket of each length up to the longest."""
    sizes = np.maximum(np.arange(longest + 1), 1)
    buckets: npt.NDArray[np.uint16] = np.floor(np.log(sizes) / np.log(BUCKET_GROWTH)).astype(np.uint16)
    return buckets


def fill(lengths: Lengths, tokens: int) -> Indexes:
    """Fill batches one after the other, each as full as either side allows: their bounds, [batches + 1].

    `tokens` is at least the longest sentence.
    """
    source, target = (np.concatenate([[0], np.cumsum(lengths[:, side], dtype=np.int64)]) for side in (0, 1))
    bounds = [0]
    while bounds[-1] < len(lengths):
        start = bounds[-1]
        fits = min(
            int(np.searchsorted(source, source[start] + tokens, side="right")),
            int(np.searchsorted(target, target[start] + tokens, side="right")),
        )
        bounds.append(fits - 1)
    return np.array(bounds, np.int64)


def share(batch: Indexes, lengths: Lengths, shares: Sequence[float], rank: int) -> Indexes:
    """The part of a batch that belongs to a worker, in proportion to `shares`.

    Pairs go out from the longest to the shortest, each to the worker that is furthest below its due. So every worker
    gets the same mix of lengths, and no worker's tokens differ from its due by more than a sentence.
    """
    if len(shares) == 1:
        return batch
    mine: Indexes = batch[assign(lengths[batch].sum(axis=1), shares) == rank]
    return mine


def assign(sizes: npt.NDArray[np.integer], shares: Sequence[float]) -> npt.NDArray[np.int64]:
    """The worker of each item."""
    portions = _portions(shares)
    due = [0.0] * len(portions)
    workers = np.empty(len(sizes), np.int64)
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[item])
        due = [waiting + portion * size for waiting, portion in zip(due, portions, strict=True)]
        neediest = due.index(max(due))
        due[neediest] -= size
        workers[item] = neediest
    return workers


def _portions(shares: Sequence[float]) -> list[float]:
    total = sum(shares)
    if not shares or min(shares) < 0 or not 0 < total < float("inf"):
        raise DragomanError(
            f"shares = {list(shares)} cannot split a batch: give numbers from 0 up, at least one above 0."
        )
    return [part / total for part in shares]
