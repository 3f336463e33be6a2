"""Dropout inside of kernels: what they are told of its rate, and `dropout.hashed_bits`."""

import triton
import triton.language as tl

from dragoman.model.dropout import keep_threshold


def drop_arguments(rate: float) -> tuple[int, float]:
    """Below which bits an element is kept, and what those that are kept are multiplied by."""
    return keep_threshold(rate), 1 / (1 - rate)


@triton.jit
def hashed(places, seed_0, seed_1):
    """32 random bits for each place, in unsigned arithmetic; to be compared as int32, so given as such."""
    x = places.to(tl.uint32) + seed_0.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15) ^ seed_1.to(tl.uint32)) * 0x846CA68B
    return (x ^ (x >> 16)).to(tl.int32, bitcast=True)
