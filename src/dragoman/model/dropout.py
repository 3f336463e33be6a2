"""Dropout whose random numbers do not cost more than the layers around them.

On a CPU, torch draws one float for each element: about as long as a 512 x 512 linear layer takes. Sixteen random bits
an element decide just as well and are drawn five times as fast; the rate is exact to 2^-16.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zeroes elements with probability `rate` and scales the others so that the expectation stays. Any shape."""
    if rate == 0.0:
        return x
    if not _draws_slowly(x):
        return F.dropout(x, rate)
    return x * keep_mask(x, rate) * (1 / (1 - rate))


def add_dropped(residual: Tensor, x: Tensor, rate: float) -> Tensor:
    """`residual + dropout(x)`, with the scaling folded into the addition where that saves a pass over memory."""
    if rate == 0.0:
        return residual + x
    if not _draws_slowly(x):
        return residual + F.dropout(x, rate)
    return torch.add(residual, x * keep_mask(x, rate), alpha=1 / (1 - rate))


def _draws_slowly(x: Tensor) -> bool:
    # A compiler fuses torch's own dropout with its neighbours, and cannot trace ours.
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def keep_mask(like: Tensor, rate: float) -> Tensor:
    """True with probability 1 - `rate`, from torch's seeded generator."""
    count = like.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # None: all 64 bits
    threshold = min(round((1 - rate) * 2**16) - 2**15, 2**15 - 1)
    return (words.view(torch.int16)[:count] < threshold).view(like.shape)
