"""Block-wise quantization to 8, 4 or 2 bits: equally spaced levels around zero, and one float32 scale for each block.

Changes of weights are distributed almost normally. With few levels, the scale that loses least follows from their
standard deviation, and the largest values are clipped (Max 1960); with 256 levels it may cover all of them.
"""

import torch
from torch import Tensor, nn

BLOCK = 512
"""Values that share a scale."""
SCALE_BYTES = 4
SPACINGS = {2: 0.9957, 4: 0.3352}
"""Distance between levels in standard deviations, by bits (Max 1960, table II)."""


def message_bytes(count: int, bits: int) -> int:
    """Size of the message for some values."""
    return -(-count // BLOCK) * (SCALE_BYTES + BLOCK * bits // 8)


def quantize(values: Tensor, bits: int) -> Tensor:
    """Bytes of [..., values], [..., bytes]: the scales of all blocks, then the numbers of the levels."""
    blocks = _split_last(nn.functional.pad(values, (0, -values.shape[-1] % BLOCK)), BLOCK)
    half = 1 << (bits - 1)
    if bits in SPACINGS:
        scales = SPACINGS[bits] * blocks.square().mean(-1, keepdim=True).sqrt()
    else:
        scales = blocks.abs().amax(-1, keepdim=True) / half
    divisors = scales.clamp_min(torch.finfo(torch.float32).tiny)
    numbers = (blocks / divisors).floor_().clamp_(-half, half - 1).add_(half).to(torch.uint8)
    return torch.cat([scales.flatten(-2).view(torch.uint8), _pack(numbers, bits).flatten(-2)], -1)


def dequantize(message: Tensor, count: int, bits: int) -> Tensor:
    """The first `count` values of each message, [..., values]."""
    scale_bytes = -(-count // BLOCK) * SCALE_BYTES
    scales = message[..., :scale_bytes].clone().view(torch.float32).unsqueeze(-1)
    numbers = _split_last(_unpack(message[..., scale_bytes:], bits), BLOCK)
    return ((numbers.float() + 0.5 - (1 << (bits - 1))) * scales).flatten(-2)[..., :count]


def _pack(numbers: Tensor, bits: int) -> Tensor:
    """Several small numbers in each byte."""
    parts = _split_last(numbers, 8 // bits)
    packed: Tensor = parts[..., 0].clone()
    for index in range(1, 8 // bits):
        packed |= parts[..., index] << (bits * index)
    return packed


def _unpack(packed: Tensor, bits: int) -> Tensor:
    parts = [(packed >> (bits * index)) & ((1 << bits) - 1) for index in range(8 // bits)]
    return torch.stack(parts, -1).flatten(-2)


def _split_last(tensor: Tensor, size: int) -> Tensor:
    """[..., n * size] as [..., n, size]."""
    return tensor.reshape(*tensor.shape[:-1], -1, size)
