"""Exact duplicates among any number of pairs, in bounded memory.

A pair is known by 128 bits of its hash: among 10^9 pairs the chance of one false match is below 10^-20.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
HASH_BYTES = 16
PARTITION_PAIRS = 4_000_000
"""Most pairs that are compared at once: 16 bytes each, and as much again to sort them."""


def hash_line(line: bytes) -> bytes:
    """The hash of a pair that is written as one line, a tab between its sides."""
    return hashlib.blake2b(line, digest_size=HASH_BYTES).digest()


def hashes_from(digests: bytes) -> Hashes:
    """Joined digests as rows of two integers."""
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


def mark_duplicates(counts: Sequence[int], load: Callable[[int], Hashes]) -> npt.NDArray[np.bool_]:
    """Which pairs repeat an earlier one. Block b holds `counts[b]` pairs, whose hashes `load(b)` brings.

    Equal pairs share their first integer, so the pairs can be compared in partitions of it, one at a time.
    """
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    repeats = np.zeros(int(firsts[-1]), np.bool_)
    partitions = max(1, -(-int(firsts[-1]) // PARTITION_PAIRS))
    for partition in range(partitions):
        hashes, places = [], []
        for block in range(len(counts)):
            block_hashes = load(block)
            chosen = np.flatnonzero(block_hashes[:, 0] % np.uint64(partitions) == partition)
            hashes.append(block_hashes[chosen])
            places.append(firsts[block] + chosen)
        if hashes:
            _mark(np.concatenate(hashes), np.concatenate(places), repeats)
    return repeats


def _mark(hashes: Hashes, places: npt.NDArray[np.int64], repeats: npt.NDArray[np.bool_]) -> None:
    """Sort stably, so that of equal pairs the earliest comes first; all the others repeat it."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    repeats[places[order[1:][same]]] = True
