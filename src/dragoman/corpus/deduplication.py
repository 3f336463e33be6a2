"""Exact deduplication of any number of pairs in bounded memory.

Pairs are compared by 128-bit hashes: among 10^9 pairs the probability of one false match is below 10^-20.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
HASH_BYTES = 16
PARTITION_PAIRS = 4_000_000
"""Maximum number of pairs compared at once: 16 bytes each, and the same again for sorting."""


def hash_line(line: bytes) -> bytes:
    """The hash of a pair, written as one line with a tab between its sides."""
    return hashlib.blake2b(line, digest_size=HASH_BYTES).digest()


def hashes_from(digests: bytes) -> Hashes:
    """Concatenated digests as rows of two integers."""
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


def random_keys(hashes: Hashes, seed: Sequence[int]) -> npt.NDArray[np.float64]:
    """A reproducible random number in [0, 1) for each pair, from its hash and the seed alone."""
    mix = np.random.default_rng(seed).integers(2**63, dtype=np.uint64) | np.uint64(1)
    mixed = (hashes[:, 1] ^ mix) * mix
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def mark_duplicates(counts: Sequence[int], load: Callable[[int], Hashes]) -> npt.NDArray[np.bool_]:
    """A mask of the pairs that repeat an earlier one. Block b has `counts[b]` pairs, with the hashes `load(b)`.

    Equal pairs have the same first integer, so pairs are partitioned by it and compared one partition at a time.
    """
    block_starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    repeats = np.zeros(int(block_starts[-1]), np.bool_)
    partitions = max(1, -(-int(block_starts[-1]) // PARTITION_PAIRS))
    for partition in range(partitions):
        hashes, positions = [], []
        for block in range(len(counts)):
            block_hashes = load(block)
            selected = np.flatnonzero(block_hashes[:, 0] % np.uint64(partitions) == partition)
            hashes.append(block_hashes[selected])
            positions.append(block_starts[block] + selected)
        if hashes:
            _mark(np.concatenate(hashes), np.concatenate(positions), repeats)
    return repeats


def _mark(hashes: Hashes, positions: npt.NDArray[np.int64], repeats: npt.NDArray[np.bool_]) -> None:
    """The sort is stable: of equal pairs the earliest comes first, and all others repeat it."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    same = (ordered[1:] == ordered[:-1]).all(axis=1)
    repeats[positions[order[1:][same]]] = True
