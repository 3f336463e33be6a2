"""Dropout with cheap random numbers.

On a CPU, torch draws one float for each element, which takes about as long as a 512 x 512 linear layer. Sixteen random
bits an element suffice and are drawn five times as fast; the rate is exact to 2^-16.

On a GPU, torch's generator runs ten rounds of Philox for each element: in a fused kernel that takes several times as
long as the memory access. A dropout module with a seed hashes each element's index instead: a dozen integer operations
that the compiler fuses with their neighbours, and repeats in the backward pass rather than store a mask. The hash is
the two-round function with the lowest known bias (Wellons' hash prospector), with two keys.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FIRST_FACTOR, _SECOND_FACTOR = 0x7FEB352D, 0x846CA68B - 2**32


class Dropout(nn.Module):
    """A dropout layer, active in training mode."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.seed: Tensor | None = None
        """[2] int32: the keys of the hash; without them torch's generator is used. See `seed_dropout`."""

    @property
    def active_rate(self) -> float:
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Zero elements with probability `rate` and scale the others, which keeps the expectation. Any shape."""
        return dropout(x, self.active_rate, self.seed)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual + dropout(x)`, with the scaling fused into the addition where that saves a pass over memory."""
        rate = self.active_rate
        if rate > 0.0 and self.seed is None and _is_slow_to_draw(x):
            return torch.add(residual, x * keep_mask(x, rate), alpha=1 / (1 - rate))
        return residual + dropout(x, rate, self.seed)

    def relu(self, x: Tensor) -> Tensor:
        """`dropout(relu(x))`. The gradient passes where the result is not zero, so the backward pass needs no mask."""
        if self.active_rate == 0.0 or self.seed is None:
            return self.forward(F.relu(x, inplace=True))  # Nothing else uses `x`.
        y: Tensor = _ReluDropout.apply(x, self.active_rate, self.seed)  # type: ignore[no-untyped-call]
        return y


def seed_dropout(model: nn.Module, device: torch.device) -> Tensor:
    """Key all dropout layers of a model by the returned tensor, [layers, 2] int32: draw new seeds each step."""
    layers = [module for module in model.modules() if isinstance(module, Dropout)]
    seeds = torch.zeros(len(layers), 2, dtype=torch.int32, device=device)
    for layer, seed in zip(layers, seeds.unbind(), strict=True):
        layer.seed = seed
    return seeds


def dropout(x: Tensor, rate: float, seed: Tensor | None = None) -> Tensor:
    if rate == 0.0:
        return x
    if seed is not None:
        return torch.where(hashed_mask(x, rate, seed), x * (1 / (1 - rate)), 0.0)
    if not _is_slow_to_draw(x):
        return F.dropout(x, rate)
    return x * keep_mask(x, rate) * (1 / (1 - rate))


def _is_slow_to_draw(x: Tensor) -> bool:
    # The compiler fuses torch's dropout with its neighbours, and cannot trace `keep_mask`.
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def keep_mask(like: Tensor, rate: float) -> Tensor:
    """True with probability 1 - `rate`, from torch's seeded generator."""
    count = like.numel()
    random = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # None: all 64 bits
    threshold = min(round((1 - rate) * 2**16) - 2**15, 2**15 - 1)
    return (random.view(torch.int16)[:count] < threshold).view(like.shape)


def hashed_mask(like: Tensor, rate: float, seed: Tensor) -> Tensor:
    """True with probability 1 - `rate`: a hash of each element's index, keyed by the seed."""
    indexes = torch.arange(like.numel(), dtype=torch.int32, device=like.device).view(like.shape)
    return hashed_bits(indexes, seed) < keep_threshold(rate)


def keep_threshold(rate: float) -> int:
    """Elements whose random bits, as int32, are below this are kept."""
    return min(round((1 - rate) * 2**32) - 2**31, 2**31 - 1)


def hashed_bits(indexes: Tensor, seed: Tensor) -> Tensor:
    """32 random bits for each int32 index; products wrap around on purpose."""
    x = indexes + seed[0]
    x = (x ^ _shift_right(x, 16)) * _FIRST_FACTOR
    x = (x ^ _shift_right(x, 15) ^ seed[1]) * _SECOND_FACTOR
    return x ^ _shift_right(x, 16)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Unsigned shift, which torch lacks: zeros from the left."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


class _ReluDropout(torch.autograd.Function):
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
