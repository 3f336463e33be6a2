"""Block-wise 8-bit quantization: one float32 scale for each block of values."""

import torch
from torch import Tensor, nn

BLOCK = 1024
"""Values that share a scale."""


def quantize(values: Tensor) -> Tensor:
    """Bytes: the scales of all blocks in float32, then the values as fractions of their scale."""
    blocks = nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return torch.cat(
        [scales.view(torch.uint8).flatten(), (blocks / scales).round_().to(torch.int8).view(torch.uint8).flatten()]
    )


def dequantize(packed: Tensor, count: int) -> Tensor:
    """The first `count` values in float32."""
    blocks = -(-count // BLOCK)
    scales = packed[: 4 * blocks].clone().view(torch.float32).view(-1, 1)
    return (packed[4 * blocks :].view(torch.int8).view(-1, BLOCK).float() * scales).flatten()[:count]
