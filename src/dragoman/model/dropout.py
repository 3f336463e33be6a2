"""Dropout whose random numbers do not cost more than the layers around them.

On a CPU, torch draws one float for each element: about as long as a 512 x 512 linear layer takes. Sixteen random bits
an element decide just as well and are drawn five times as fast; the rate is exact to 2^-16.

On a GPU, torch's generator takes ten rounds of Philox for each element: in a fused kernel that is several times what
the memory takes. There a site of dropout that was given seeds hashes the place of each element instead: a dozen
integer operations that a compiler fuses with whatever is around them, and does again in the backward pass rather than
keep a mask. The hash is the one with the lowest known bias of two rounds (Wellons' hash prospector), keyed twice.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FIRST_FACTOR, _SECOND_FACTOR = 0x7FEB352D, 0x846CA68B - 2**32


class Dropout(nn.Module):
    """One place of a model where dropout happens while it is in training."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.seed: Tensor | None = None
        """[2] int32: what decides, where it was given; else torch's generator does. See `seed_dropout`."""

    @property
    def active_rate(self) -> float:
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes elements with probability `rate` and scales the others so that the expectation stays. Any shape."""
        return dropout(x, self.active_rate, self.seed)

    def added(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + dropout(x)`, with the scaling folded into the addition where that saves a pass over memory."""
        rate = self.active_rate
        if rate > 0.0 and self.seed is None and _draws_slowly(x):
            return torch.add(residual, x * keep_mask(x, rate), alpha=1 / (1 - rate))
        return residual + dropout(x, rate, self.seed)

    def of_relu(self, x: Tensor) -> Tensor:
        """`dropout(relu(x))`. Its gradient passes where the result is not zero, so that no mask is needed again."""
        if self.active_rate == 0.0 or self.seed is None:
            return self.forward(F.relu(x, inplace=True))  # Nothing else needs the values before.
        y: Tensor = _DroppedRelu.apply(x, self.active_rate, self.seed)  # type: ignore[no-untyped-call]
        return y


def seed_dropout(model: nn.Module, device: torch.device) -> Tensor:
    """Makes all dropout of a model depend on one tensor of seeds alone, [sites, 2] int32: draw them anew each step."""
    sites = [module for module in model.modules() if isinstance(module, Dropout)]
    seeds = torch.zeros(len(sites), 2, dtype=torch.int32, device=device)
    for site, seed in zip(sites, seeds.unbind(), strict=True):
        site.seed = seed
    return seeds


def dropout(x: Tensor, rate: float, seed: Tensor | None = None) -> Tensor:
    if rate == 0.0:
        return x
    if seed is not None:
        return torch.where(hashed_mask(x, rate, seed), x * (1 / (1 - rate)), 0.0)
    if not _draws_slowly(x):
        return F.dropout(x, rate)
    return x * keep_mask(x, rate) * (1 / (1 - rate))


def _draws_slowly(x: Tensor) -> bool:
    # A compiler fuses torch's own dropout with its neighbours, and cannot trace ours.
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def keep_mask(like: Tensor, rate: float) -> Tensor:
    """True with probability 1 - `rate`, from torch's seeded generator."""
    count = like.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # None: all 64 bits
    threshold = min(round((1 - rate) * 2**16) - 2**15, 2**15 - 1)
    return (words.view(torch.int16)[:count] < threshold).view(like.shape)


def hashed_mask(like: Tensor, rate: float, seed: Tensor) -> Tensor:
    """True with probability 1 - `rate`, decided by the seeds and each element's place."""
    places = torch.arange(like.numel(), dtype=torch.int32, device=like.device).view(like.shape)
    return hashed_bits(places, seed) < keep_threshold(rate)


def keep_threshold(rate: float) -> int:
    """Random bits, taken as int32, below this mean to keep."""
    return min(round((1 - rate) * 2**32) - 2**31, 2**31 - 1)


def hashed_bits(places: Tensor, seed: Tensor) -> Tensor:
    """32 random bits for each int32 place; products wrap around, as they should."""
    x = places + seed[0]
    x = (x ^ _shifted(x, 16)) * _FIRST_FACTOR
    x = (x ^ _shifted(x, 15) ^ seed[1]) * _SECOND_FACTOR
    return x ^ _shifted(x, 16)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, filled with zeros: torch has no unsigned shift."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


class _DroppedRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, seed: Tensor) -> Tensor:
        ctx.scale = 1 / (1 - rate)
        y = torch.where(hashed_mask(x, rate, seed) & (x > 0), x * ctx.scale, 0.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors
        return torch.where(y > 0, grad * ctx.scale, 0.0), None, None
