"""Residual addition with dropout, and the norm of the next sublayer, in one pass over memory.

The backward pass is one pass, too. Each program loops over a strip of tokens and sums their part of the gradient of
the norm's weights; a second kernel adds up the strips, always in the same order.

Shapes: T tokens, d features; a tile has R tokens, B features (d, rounded up to a power of two); P strips.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dragoman.model.kernels.dropout_bits import dropout_arguments, hash_bits, keep_features

TILE, WARPS = 4, 4
STRIPS = 512
SUM_COLUMNS = 16


@torch.library.custom_op("dragoman::add_and_norm", mutates_args=())
def add_and_norm(
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
    dropout_rate: float,
    seed: Tensor | None,
    places: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`x + dropout(y)`, in x's type; its norm, in y's type; and for the backward pass the mean that was subtracted from
    each token and its scale, [T] float32 both. x and y are [T, d], weight and bias [d].

    With a bias it is a layer norm, without one an RMS norm, whose mean is 0. Dropout needs `places`, [T] int32, those
    of the tokens in the global batch.
    """
    tokens, features = x.shape
    x, y = x.contiguous(), y.contiguous()
    total, normed = torch.empty_like(x), torch.empty_like(y)
    means, scales = (torch.empty(tokens, dtype=torch.float32, device=x.device) for _ in range(2))
    _forward[(triton.cdiv(tokens, TILE),)](
        x, y, weight, bias, seed, places, total, normed, means, scales, tokens, epsilon,
        *dropout_arguments(dropout_rate),
        **_constants(features, bias is not None, dropout_rate),
    )  # fmt: skip
    return total, normed, means, scales


@add_and_norm.register_fake
def _(x: Tensor, y: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    means, scales = (x.new_empty(x.shape[0], dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), y.new_empty(y.shape), means, scales


@torch.library.custom_op("dragoman::add_and_norm_backward", mutates_args=())
def add_and_norm_backward(
    grad_total: Tensor,
    grad_normed: Tensor,
    total: Tensor,
    means: Tensor,
    scales: Tensor,
    weight: Tensor,
    centred: bool,
    dropout_rate: float,
    seed: Tensor | None,
    places: Tensor | None,
) -> list[Tensor]:
    """The gradients of x, y, the weight and, if row_mask is one, the bias."""
    tokens, features = total.shape
    grad_total, grad_normed = grad_total.contiguous(), grad_normed.contiguous()
    grad_x, grad_y = torch.empty_like(total), torch.empty_like(grad_normed)
    strips = min(STRIPS, triton.cdiv(tokens, TILE))
    sums = torch.empty(strips, 2 if centred else 1, features, dtype=torch.float32, device=total.device)
    _backward[(strips,)](
        grad_total, grad_normed, total, means, scales, weight, seed, places, grad_x, grad_y, sums, tokens,
        *dropout_arguments(dropout_rate), **_constants(features, centred, dropout_rate),
    )  # fmt: skip
    weights = [torch.empty_like(weight) for _ in range(sums.shape[1])]
    _add_strips[(triton.cdiv(features, SUM_COLUMNS), len(weights))](
        sums, weights[0], weights[-1], strips, features, P=triton.next_power_of_2(strips), C=SUM_COLUMNS
    )
    return [grad_x, grad_y, *weights]


@add_and_norm_backward.register_fake
def _(
    grad_total: Tensor,  # noqa: ARG001
    grad_normed: Tensor,
    total: Tensor,
    means: Tensor,  # noqa: ARG001
    scales: Tensor,  # noqa: ARG001
    weight: Tensor,
    centred: bool,
    *_: Any,
) -> list[Tensor]:
    weights = [weight.new_empty(weight.shape) for _ in range(2 if centred else 1)]
    return [total.new_empty(total.shape), grad_normed.new_empty(grad_normed.shape), *weights]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, bias, _, ctx.dropout_rate, seed, places = inputs
    total, _, means, scales = output
    ctx.centred = bias is not None
    ctx.save_for_backward(total, means, scales, weight, seed, places)
    ctx.mark_non_differentiable(means, scales)


def _backward_op(ctx: Any, grad_total: Tensor, grad_normed: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    *tensors, seed, places = ctx.saved_tensors
    gradients = add_and_norm_backward(grad_total, grad_normed, *tensors, ctx.centred, ctx.dropout_rate, seed, places)
    return (*gradients, *(None for _ in range(8 - len(gradients))))


add_and_norm.register_autograd(_backward_op, setup_context=_setup_context)


def _constants(features: int, centred: bool, dropout_rate: float) -> dict[str, Any]:
    return {
        "D": features, "R": TILE, "B": triton.next_power_of_2(features), "CENTRED": centred,
        "DROPS": dropout_rate > 0.0, "num_warps": WARPS,
    }  # fmt: skip


@triton.jit
def _forward(
    x, y, weight, bias, seed, places, total, normed, means, scales, tokens, epsilon, threshold, keep_scale,
    D: tl.constexpr, R: tl.constexpr, B: tl.constexpr, CENTRED: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    rows, features = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, B)
    row_mask, feature_mask = rows < tokens, features < D
    tile_mask = row_mask[:, None] & feature_mask[None, :]
    indexes = rows[:, None] * D + features[None, :]
    y_RB = tl.load(y + indexes, mask=tile_mask, other=0.0).to(tl.float32)
    if DROPS:
        token_bits = hash_bits(tl.load(places + rows, mask=row_mask, other=0), tl.load(seed), tl.load(seed + 1))
        keep = keep_features(token_bits[:, None], features[None, :], threshold)
        y_RB = tl.where(keep, y_RB * keep_scale, 0.0)
    total_RB = tl.load(x + indexes, mask=tile_mask, other=0.0).to(tl.float32) + y_RB
    tl.store(total + indexes, total_RB, mask=tile_mask)
    weight_B = tl.load(weight + features, mask=feature_mask, other=0.0)
    mean_R = tl.zeros([R], tl.float32)
    if CENTRED:
        mean_R = tl.sum(total_RB, 1) / D
    centred_RB = tl.where(tile_mask, total_RB - mean_R[:, None], 0.0)
    scale_R = 1.0 / tl.sqrt(tl.sum(centred_RB * centred_RB, 1) / D + epsilon)
    normed_RB = centred_RB * scale_R[:, None] * weight_B[None, :]
    if CENTRED:
        normed_RB += tl.load(bias + features, mask=feature_mask, other=0.0)[None, :]
    tl.store(normed + indexes, normed_RB.to(normed.dtype.element_ty), mask=tile_mask)
    tl.store(means + rows, mean_R, mask=row_mask)
    tl.store(scales + rows, scale_R, mask=row_mask)


@triton.jit
def _backward(
    grad_total, grad_normed, total, means, scales, weight, seed, places, grad_x, grad_y, sums, tokens, threshold,
    keep_scale,
    D: tl.constexpr, R: tl.constexpr, B: tl.constexpr, CENTRED: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """One strip: program p processes tiles p, p + P, p + 2 P, ..."""
    strip, features = tl.program_id(0), tl.arange(0, B)
    feature_mask = features < D
    weight_B = tl.load(weight + features, mask=feature_mask, other=0.0).to(tl.float32)
    if DROPS:
        seed_0, seed_1 = tl.load(seed), tl.load(seed + 1)
    weight_sum_RB = tl.zeros([R, B], tl.float32)
    bias_sum_RB = tl.zeros([R, B], tl.float32)
    for first in range(strip * R, tokens, tl.num_programs(0) * R):
        rows = first + tl.arange(0, R)
        row_mask = rows < tokens
        tile_mask = row_mask[:, None] & feature_mask[None, :]
        indexes = rows[:, None] * D + features[None, :]
        grad_RB = tl.load(grad_normed + indexes, mask=tile_mask, other=0.0).to(tl.float32)
        total_RB = tl.load(total + indexes, mask=tile_mask, other=0.0).to(tl.float32)
        grad_total_RB = tl.load(grad_total + indexes, mask=tile_mask, other=0.0).to(tl.float32)
        scale_R = tl.load(scales + rows, mask=row_mask, other=0.0)
        if CENTRED:
            mean_R = tl.load(means + rows, mask=row_mask, other=0.0)
            total_RB = tl.where(tile_mask, total_RB - mean_R[:, None], 0.0)
        normalized_RB = total_RB * scale_R[:, None]
        weight_sum_RB += grad_RB * normalized_RB
        slope_RB = grad_RB * weight_B[None, :]
        grad_stream_RB = slope_RB - normalized_RB * (tl.sum(slope_RB * normalized_RB, 1) / D)[:, None]
        if CENTRED:
            bias_sum_RB += grad_RB
            grad_stream_RB -= (tl.sum(slope_RB, 1) / D)[:, None]
        out_RB = grad_total_RB + grad_stream_RB * scale_R[:, None]
        tl.store(grad_x + indexes, out_RB, mask=tile_mask)
        if DROPS:
            token_bits = hash_bits(tl.load(places + rows, mask=row_mask, other=0), seed_0, seed_1)
            keep = keep_features(token_bits[:, None], features[None, :], threshold)
            out_RB = tl.where(keep, out_RB * keep_scale, 0.0)
        tl.store(grad_y + indexes, out_RB.to(grad_y.dtype.element_ty), mask=tile_mask)
    sums += strip * D * (2 if CENTRED else 1)
    tl.store(sums + features, tl.sum(weight_sum_RB, 0), mask=feature_mask)
    if CENTRED:
        tl.store(sums + D + features, tl.sum(bias_sum_RB, 0), mask=feature_mask)


@triton.jit
def _add_strips(sums, grad_weight, grad_bias, strips, D, P: tl.constexpr, C: tl.constexpr):
    """Some columns of the gradient of the weight or of the bias."""
    strip_P, column_C, part = tl.arange(0, P), tl.program_id(0) * C + tl.arange(0, C), tl.program_id(1)
    tile_mask = (strip_P < strips)[:, None] & (column_C < D)[None, :]
    indexes = (strip_P[:, None] * tl.num_programs(1) + part) * D + column_C[None, :]
    sum_C = tl.sum(tl.load(sums + indexes, mask=tile_mask, other=0.0), 0)
    if part == 0:
        tl.store(grad_weight + column_C, sum_C, mask=column_C < D)
    else:
        tl.store(grad_bias + column_C, sum_C, mask=column_C < D)
