"""`dropout.hashed_bits` inside of kernels."""

import triton
import triton.language as tl


@triton.jit
def hashed(places, seed_0, seed_1):
    """32 random bits for each place, in unsigned arithmetic; to be compared as int32, so given as such."""
    x = places.to(tl.uint32) + seed_0.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15) ^ seed_1.to(tl.uint32)) * 0x846CA68B
    return (x ^ (x >> 16)).to(tl.int32, bitcast=True)
