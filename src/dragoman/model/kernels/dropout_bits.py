"""Dropout inside of kernels: its arguments, and `dropout.hashed_bits` in Triton."""

import triton
import triton.language as tl

from dragoman.model.dropout import keep_threshold


def dropout_arguments(rate: float) -> tuple[int, float]:
    """The threshold below which random bits keep an element, and the scale of the elements kept."""
    return keep_threshold(rate), 1 / (1 - rate)


@triton.jit
def hash_bits(indexes, seed_0, seed_1):
    """32 random bits for each index, computed in unsigned arithmetic and returned as int32, to compare as such."""
    x = indexes.to(tl.uint32) + seed_0.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15) ^ seed_1.to(tl.uint32)) * 0x846CA68B
    return (x ^ (x >> 16)).to(tl.int32, bitcast=True)
