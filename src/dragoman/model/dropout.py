"""Dropout whose masks belong to the tokens of the global batch.

An element is kept or dropped by a hash of the run's seed, the step, the layer, the token's place in the *global* batch
and the feature. So the masks, and with them the loss curve, are the same for any number of workers, any shares, any
micro-batches and any padding, on every device.

1. For each step, every layer gets two seeds, from the seed of the run and the step (`draw_seeds`).
2. Each token gets 32 bits: a keyed hash of its place, the two-round function with the lowest known bias (Wellons' hash
   prospector).
3. Each pair of features gets 32 bits: two rounds of multiplication over the bits of the token and the number of the
   pair. The low half decides the first feature, the high half the second: rates are exact to 2^-16.

For attention weights, a query and a head take the place of the token, and a key's position in its sentence, with 32
bits of its own, that of the pair of features.

This takes a few integer operations for each element, fewer than torch's generators. A compiler fuses them with their
neighbours, and repeats them in the backward pass rather than store a mask.

Shapes: T tokens, n features.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

FIRST_FACTOR, SECOND_FACTOR = 0x7FEB352D, 0x846CA68B - 2**32
COUNTER_FACTOR = 0x9E3779B9 - 2**32
"""2^32 over the golden ratio: consecutive numbers times this differ in many bits."""


class Dropout(nn.Module):
    """A dropout layer, active in training mode."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.seed: Tensor | None = None
        """[2] int32: the keys of the hash. See `seed_dropout`."""

    @property
    def active_rate(self) -> float:
        return self.rate if self.training else 0.0

    @property
    def active_seed(self) -> Tensor | None:
        return self.seed if self.active_rate else None

    def forward(self, x: Tensor, places: Tensor | None) -> Tensor:
        """Zero elements of [T, n] with probability `rate` and scale the others, which keeps the expectation.

        `places` are those of the tokens in the global batch, [T] int32. Only training needs them.
        """
        if self.active_rate == 0.0:
            return x
        return x * keep_mask(x, *self._keys(places)) * keep_scale(self.rate)

    def add(self, residual: Tensor, x: Tensor, places: Tensor | None) -> Tensor:
        """`residual + dropout(x)` in one pass over memory, [T, n]."""
        if self.active_rate == 0.0:
            return residual + x
        x = x.to(residual.dtype)
        return torch.addcmul(residual, x, keep_mask(x, *self._keys(places)), value=keep_scale(self.rate))

    def relu(self, x: Tensor, places: Tensor | None) -> Tensor:
        """`dropout(relu(x))`. The gradient passes where the result is not zero, so the backward pass needs no mask."""
        if self.active_rate == 0.0:
            return F.relu(x, inplace=True)  # Nothing else uses `x`.
        y: Tensor = _ReluDropout.apply(  # type: ignore[no-untyped-call]
            x, keep_mask(x, *self._keys(places)), keep_scale(self.rate)
        )
        return y

    def weights(self, x: Tensor, places: Tensor) -> Tensor:
        """The same for attention weights, [S, H, Lq, Lk]; `places` are those of the queries, [S, Lq]."""
        if self.active_rate == 0.0:
            return x
        return x * keep_weights_mask(x, *self._keys(places)) * keep_scale(self.rate)

    def _keys(self, places: Tensor | None) -> tuple[Tensor, Tensor, float]:
        assert places is not None, "dropout needs the places of the tokens in the global batch"
        assert self.seed is not None, "dropout needs seeds: see seed_dropout"
        return places, self.seed, self.rate


def seed_dropout(model: nn.Module, device: torch.device) -> Tensor:
    """Key all dropout layers of a model by the returned tensor, [layers, 2] int32: fill it in each step."""
    layers = [module for module in model.modules() if isinstance(module, Dropout)]
    seeds = torch.zeros(len(layers), 2, dtype=torch.int32, device=device)
    for layer, seed in zip(layers, seeds.unbind(), strict=True):
        layer.seed = seed
    return seeds


def draw_seeds(seeds: Tensor, run_seed: int, step: int) -> None:
    """Fill the seeds for a step: the same on every worker and every device."""
    drawn = np.random.SeedSequence((run_seed, step)).generate_state(seeds.numel())
    seeds.copy_(torch.from_numpy(drawn.view(np.int32)).view_as(seeds), non_blocking=True)


def keep_mask(like: Tensor, places: Tensor, seed: Tensor, rate: float) -> Tensor:
    """[T, n], in the type of `like`: 1 with probability 1 - `rate`, otherwise 0."""
    token_bits, features = hashed_bits(places, seed)[:, None], like.shape[1]
    if torch.compiler.is_compiling():  # It fuses what has one index: each feature computes the bits of its pair.
        feature = torch.arange(features, dtype=torch.int32, device=like.device)
        words = mix_bits_(token_bits ^ (feature >> 1) * COUNTER_FACTOR)
        return (words << 16 * (1 - (feature & 1)) < keep_threshold(rate)).to(like.dtype)
    pair = torch.arange(-(-features // 2), dtype=torch.int32, device=like.device)
    halves = mix_bits_(token_bits ^ pair * COUNTER_FACTOR).view(torch.int16)[:, :features]
    return torch.lt(halves, keep_threshold(rate) >> 16, out=torch.empty_like(like))


def keep_weights_mask(like: Tensor, places: Tensor, seed: Tensor, rate: float) -> Tensor:
    """The same for attention weights [S, H, Lq, Lk] of queries at `places`, [S, Lq]."""
    _, heads, _, keys = like.shape
    head, key = (torch.arange(count, dtype=torch.int32, device=like.device) for count in (heads, keys))
    row_bits = hashed_bits(places[:, None] * heads + head[:, None], seed)[..., None]  # [S, H, Lq, 1]
    return torch.lt(mix_bits_(row_bits ^ key * COUNTER_FACTOR), keep_threshold(rate), out=torch.empty_like(like))


def keep_threshold(rate: float) -> int:
    """Elements whose random bits, as int32, are below this are kept. Only the high 16 bits count."""
    return min((_kept_of_2_16(rate) - 2**15) << 16, 2**31 - 1)


def keep_scale(rate: float) -> float:
    """The inverse of the probability of an element to be kept."""
    return 2**16 / _kept_of_2_16(rate)


def _kept_of_2_16(rate: float) -> int:
    return max(1, round((1 - rate) * 2**16))


def hashed_bits(indexes: Tensor, seed: Tensor) -> Tensor:
    """32 random bits for each int32 index; products wrap around on purpose."""
    x = indexes + seed[0]
    x = (x ^ _shift_right(x, 16)) * FIRST_FACTOR
    x = (x ^ _shift_right(x, 15) ^ seed[1]) * SECOND_FACTOR
    return x ^ _shift_right(x, 16)


def mix_bits_(x: Tensor) -> Tensor:
    """32 random bits for each int32 that has random bits already, in place. The shift copies the sign bit."""
    x.mul_(FIRST_FACTOR)
    x.bitwise_xor_(x >> 15)
    return x.mul_(SECOND_FACTOR)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Unsigned shift, which torch lacks: zeros from the left."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        y = torch.relu(x) * mask * scale
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad, y, 0) * ctx.scale, None, None
