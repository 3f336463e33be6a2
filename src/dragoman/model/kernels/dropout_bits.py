"""Dropout inside of kernels: its arguments, and the hashes of `dropout` in Triton."""

import triton
import triton.language as tl

from dragoman.model.dropout import COUNTER_FACTOR, FIRST_FACTOR, SECOND_FACTOR, keep_scale, keep_threshold

_FIRST, _SECOND, _COUNTER = tl.constexpr(FIRST_FACTOR), tl.constexpr(SECOND_FACTOR), tl.constexpr(COUNTER_FACTOR)


def dropout_arguments(rate: float) -> tuple[int, float]:
    """The threshold below which random bits keep an element, and the scale of the elements kept."""
    return keep_threshold(rate), keep_scale(rate)


@triton.jit
def hash_bits(indexes, seed_0, seed_1):
    """32 random bits for each index, computed in unsigned arithmetic and returned as int32, to compare as such."""
    x = indexes.to(tl.uint32) + seed_0.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15) ^ seed_1.to(tl.uint32)) * 0x846CA68B
    return (x ^ (x >> 16)).to(tl.int32, bitcast=True)


@triton.jit
def keep_features(token_bits, features, threshold):
    """Whether features of tokens are kept: see `dropout.keep_mask`."""
    words = _mix_bits(token_bits ^ ((features >> 1) * _COUNTER))
    return (words << (16 * (1 - (features & 1)))) < threshold


@triton.jit
def keep_weights(row_bits, positions, threshold):
    """Whether attention weights of keys at these positions are kept: see `dropout.keep_weights_mask`."""
    return _mix_bits(row_bits ^ (positions * _COUNTER)) < threshold


@triton.jit
def _mix_bits(x):
    """In int32: the shift copies the sign bit."""
    x = x * _FIRST
    return (x ^ (x >> 15)) * _SECOND
