"""Attention over packed sentences on a GPU, with dropout of its weights and static shapes.

A program processes a tile of consecutive queries of one head, of any sentences, and loops over the keys from the first
token of its first sentence to the last token of its last; keys of other sentences are masked. So the grid depends only
on the number of tokens, short sentences waste no tile, and one CUDA graph of a step serves all batches. Tokens after
the last sentence are filler: they attend to nothing, nothing attends to them, and their output is zero.

Dropout hashes the query's place in the global batch, the head, and the key's position in its sentence, as `dropout`
does. The backward pass computes the hash again.

Shapes: T tokens (Tq queries, Tk keys), S sentences, H heads, D features of a head; a tile has M queries, N keys.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dragoman.model.kernels.dropout_bits import dropout_arguments, hash_bits, keep_weights

LOG2_E = tl.constexpr(1.4426950408889634)
QUERY_TILE, KEY_TILE = 64, 64
WARPS, STAGES = 4, 1


@torch.library.custom_op("dragoman::attend", mutates_args=())
def attend(
    x: Tensor,
    y: Tensor | None,
    q_sentences: Tensor,
    k_sentences: Tensor,
    q_bounds: Tensor,  # noqa: ARG001 (the backward pass needs them)
    k_bounds: Tensor,
    q_places: Tensor,
    k_positions: Tensor,
    causal: bool,
    dropout_rate: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Attention within each sentence: the output, [Tq, H, D], and for the backward pass the base-2 logarithms of the
    softmax denominators, [H, Tq].

    `x` [T, 3, H, D] holds queries, keys and values of self-attention; or `x` holds queries, [Tq, 1, H, D], and `y`
    [Tk, 2, H, D] keys and values: fused, as the projections return them, and so are their gradients. `*_sentences` [T]
    int32 are the sentence ids of the tokens; `*_bounds` int32 are the first token of each sentence and, after the last,
    the number of tokens in sentences, twice. Dropout needs `q_places` [Tq] int32, the places of the queries in the
    global batch, and `k_positions` [Tk] int64, the positions of the keys in their sentences. `causal` is for
    self-attention.
    """
    q, k, v = _split_qkv(x, y)
    queries, heads, size = q.shape
    out = torch.empty(queries, heads, size, dtype=q.dtype, device=q.device)
    log_sums = torch.empty(heads, queries, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(queries, QUERY_TILE), heads)
    _forward[grid](
        q, k, v, out, log_sums, q_sentences, k_sentences, k_bounds, q_places, k_positions, seed,
        *_strides(q), *_strides(k), *_strides(v), queries, *dropout_arguments(dropout_rate),
        **_constants(heads, size, causal, dropout_rate),
    )  # fmt: skip
    return out, log_sums


@attend.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    queries, _split_qkv, heads, size = x.shape
    return x.new_empty(queries, heads, size), x.new_empty(heads, queries, dtype=torch.float32)


@torch.library.custom_op("dragoman::attend_backward", mutates_args=())
def attend_backward(
    grad: Tensor,
    out: Tensor,
    log_sums: Tensor,
    x: Tensor,
    y: Tensor | None,
    q_sentences: Tensor,
    k_sentences: Tensor,
    q_bounds: Tensor,
    k_bounds: Tensor,
    q_places: Tensor,
    k_positions: Tensor,
    causal: bool,
    dropout_rate: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """The gradients of `x` and, if valid is one, of `y`."""
    q, k, v = _split_qkv(x, y)
    (queries, heads, size), keys = q.shape, k.shape[0]
    grad = grad.contiguous()
    gradients = [torch.empty(each.shape, dtype=x.dtype, device=x.device) for each in (x, y) if each is not None]
    grad_q, grad_k, grad_v = _split_qkv(*gradients)
    deltas = torch.empty_like(log_sums)
    inputs = q, k, v, grad, log_sums, deltas, q_sentences, k_sentences, q_places, k_positions, seed
    strides = *_strides(q), *_strides(k), *_strides(v)
    drops = dropout_arguments(dropout_rate)
    constants = _constants(heads, size, causal, dropout_rate)
    _backward_queries[(triton.cdiv(queries, QUERY_TILE), heads)](
        grad_q, out, k_bounds, *inputs, *strides, grad_q.stride(0), queries, *drops, **constants
    )
    _backward_keys[(triton.cdiv(keys, KEY_TILE), heads)](
        grad_k, grad_v, q_bounds, *inputs, *strides, grad_k.stride(0), queries, keys, *drops, **constants
    )
    return gradients


@attend_backward.register_fake
def _(grad: Tensor, out: Tensor, log_sums: Tensor, x: Tensor, y: Tensor | None, *_: Any) -> list[Tensor]:  # noqa: ARG001
    return [each.new_empty(each.shape) for each in (x, y) if each is not None]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout_rate, seed = inputs
    ctx.save_for_backward(*output, *tensors, seed)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed = ctx.saved_tensors
    gradients = attend_backward(grad, *tensors, ctx.causal, ctx.dropout_rate, seed)
    return (*gradients, *(None for _ in range(11 - len(gradients))))


attend.register_autograd(_backward, setup_context=_setup_context)


def _split_qkv(x: Tensor, y: Tensor | None = None) -> tuple[Tensor, ...]:
    """Queries, keys and values, [T, H, D] each."""
    return x.unbind(1) if y is None else (x[:, 0], *y.unbind(1))


def _strides(x: Tensor) -> tuple[int, int]:
    if x.stride(2) != 1:
        raise ValueError("the features of a head must be contiguous in memory")
    return x.stride(0), x.stride(1)


def _constants(heads: int, size: int, causal: bool, dropout_rate: float) -> dict[str, Any]:
    return {
        "H": heads, "D": size, "M": QUERY_TILE, "N": KEY_TILE, "CAUSAL": causal, "DROPS": dropout_rate > 0.0,
        "num_warps": WARPS, "num_stages": STAGES,
    }  # fmt: skip


@triton.jit
def _key_range(q_sentences, k_bounds, first, queries, M: tl.constexpr, CAUSAL: tl.constexpr):
    """First key, and the end of the keys, that a tile of M queries attends to."""
    begin = tl.load(k_bounds + tl.load(q_sentences + first))
    end = tl.load(k_bounds + tl.load(q_sentences + tl.minimum(first + M, queries) - 1) + 1)
    if CAUSAL:
        end = tl.minimum(end, first + M)
    return begin, end


@triton.jit
def _forward(
    q, k, v, out, log_sums, q_sentences, k_sentences, k_bounds, q_places, k_positions, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, queries, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    first, head = tl.program_id(0) * M, tl.program_id(1)
    rows, features = first + tl.arange(0, M), tl.arange(0, D)
    in_tile = rows < queries
    sentence_M = tl.load(q_sentences + rows, mask=in_tile, other=-1)
    begin, end = _key_range(q_sentences, k_bounds, first, queries, M, CAUSAL)
    q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=in_tile[:, None], other=0.0)
    scale = LOG2_E / tl.sqrt(D * 1.0)
    if DROPS:
        place_M = tl.load(q_places + rows, mask=in_tile, other=0)
        row_bits = hash_bits(place_M * H + head, tl.load(seed), tl.load(seed + 1))
    top_M = tl.full([M], float("-inf"), tl.float32)
    sum_M = tl.zeros([M], tl.float32)
    out_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, N):
        columns = start + tl.arange(0, N)
        valid = columns < end
        k_DN = tl.load(k + columns[None, :] * k_row + head * k_head + features[:, None], mask=valid[None, :], other=0.0)
        v_ND = tl.load(v + columns[:, None] * v_row + head * v_head + features[None, :], mask=valid[:, None], other=0.0)
        sentence_N = tl.load(k_sentences + columns, mask=valid, other=-2)
        visible = sentence_M[:, None] == sentence_N[None, :]
        if CAUSAL:
            visible = visible & (rows[:, None] >= columns[None, :])
        scores_MN = tl.where(visible, tl.dot(q_MD, k_DN) * scale, float("-inf"))
        new_top_M = tl.maximum(top_M, tl.max(scores_MN, 1))
        # A row without a visible key so far has a maximum of -inf: any finite number works instead.
        safe_top_M = tl.where(new_top_M == float("-inf"), 0.0, new_top_M)
        weights_MN = tl.exp2(scores_MN - safe_top_M[:, None])
        rescale_M = tl.exp2(top_M - safe_top_M)
        sum_M = sum_M * rescale_M + tl.sum(weights_MN, 1)
        if DROPS:
            position_N = tl.load(k_positions + columns, mask=valid, other=0).to(tl.int32)
            keep = keep_weights(row_bits[:, None], position_N[None, :], threshold)
            weights_MN = tl.where(keep, weights_MN, 0.0)
        out_MD = tl.dot(weights_MN.to(v_ND.dtype), v_ND, out_MD * rescale_M[:, None])
        top_M = new_top_M
    has_keys = sum_M > 0.0
    safe_sum_M = tl.where(has_keys, sum_M, 1.0)
    out_MD = out_MD * (keep_scale / safe_sum_M)[:, None]
    log_sum_M = tl.where(has_keys, top_M + tl.log2(safe_sum_M), 0.0)
    tl.store(out + (rows[:, None] * H + head) * D + features[None, :], out_MD.to(q_MD.dtype), mask=in_tile[:, None])
    tl.store(log_sums + head * queries + rows, log_sum_M, mask=in_tile)


@triton.jit
def _backward_queries(
    grad_q, out, k_bounds, q, k, v, grad, log_sums, deltas, q_sentences, k_sentences, q_places, k_positions, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, queries, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries, summed over its keys; stores sum(out * grad) of each row for `_backward_keys`."""
    first, head = tl.program_id(0) * M, tl.program_id(1)
    rows, features = first + tl.arange(0, M), tl.arange(0, D)
    in_tile = rows < queries
    sentence_M = tl.load(q_sentences + rows, mask=in_tile, other=-1)
    begin, end = _key_range(q_sentences, k_bounds, first, queries, M, CAUSAL)
    q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=in_tile[:, None], other=0.0)
    packed = (rows[:, None] * H + head) * D + features[None, :]
    out_MD = tl.load(out + packed, mask=in_tile[:, None], other=0.0)
    grad_MD = tl.load(grad + packed, mask=in_tile[:, None], other=0.0)
    log_sum_M = tl.load(log_sums + head * queries + rows, mask=in_tile, other=0.0)
    delta_M = tl.sum(out_MD.to(tl.float32) * grad_MD.to(tl.float32), 1)
    tl.store(deltas + head * queries + rows, delta_M, mask=in_tile)
    scale = 1.0 / tl.sqrt(D * 1.0)
    if DROPS:
        place_M = tl.load(q_places + rows, mask=in_tile, other=0)
        row_bits = hash_bits(place_M * H + head, tl.load(seed), tl.load(seed + 1))
    total_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, N):
        columns = start + tl.arange(0, N)
        valid = columns < end
        k_ND = tl.load(k + columns[:, None] * k_row + head * k_head + features[None, :], mask=valid[:, None], other=0.0)
        v_DN = tl.load(v + columns[None, :] * v_row + head * v_head + features[:, None], mask=valid[None, :], other=0.0)
        sentence_N = tl.load(k_sentences + columns, mask=valid, other=-2)
        visible = sentence_M[:, None] == sentence_N[None, :]
        if CAUSAL:
            visible = visible & (rows[:, None] >= columns[None, :])
        scores_MN = tl.dot(q_MD, tl.trans(k_ND)) * (scale * LOG2_E)
        weights_MN = tl.where(visible, tl.exp2(scores_MN - log_sum_M[:, None]), 0.0)
        grad_weights_MN = tl.dot(grad_MD, v_DN)
        if DROPS:
            position_N = tl.load(k_positions + columns, mask=valid, other=0).to(tl.int32)
            keep = keep_weights(row_bits[:, None], position_N[None, :], threshold)
            grad_weights_MN = tl.where(keep, grad_weights_MN * keep_scale, 0.0)
        grad_scores_MN = weights_MN * (grad_weights_MN - delta_M[:, None]) * scale
        total_MD = tl.dot(grad_scores_MN.to(k_ND.dtype), k_ND, total_MD)
    indexes_MD = rows[:, None] * grad_row + head * D + features[None, :]
    tl.store(grad_q + indexes_MD, total_MD.to(q_MD.dtype), mask=in_tile[:, None])


@triton.jit
def _backward_keys(
    grad_k, grad_v, q_bounds, q, k, v, grad, log_sums, deltas, q_sentences, k_sentences, q_places, k_positions, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, queries, keys, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and values, summed over the queries that attend to them."""
    first, head = tl.program_id(0) * N, tl.program_id(1)
    columns, features = first + tl.arange(0, N), tl.arange(0, D)
    in_tile = columns < keys
    sentence_N = tl.load(k_sentences + columns, mask=in_tile, other=-2)
    begin = tl.load(q_bounds + tl.load(k_sentences + first))
    end = tl.load(q_bounds + tl.load(k_sentences + tl.minimum(first + N, keys) - 1) + 1)
    if CAUSAL:
        begin = tl.maximum(begin, first)
    k_ND = tl.load(k + columns[:, None] * k_row + head * k_head + features[None, :], mask=in_tile[:, None], other=0.0)
    v_ND = tl.load(v + columns[:, None] * v_row + head * v_head + features[None, :], mask=in_tile[:, None], other=0.0)
    scale = 1.0 / tl.sqrt(D * 1.0)
    if DROPS:
        seed_0, seed_1 = tl.load(seed), tl.load(seed + 1)
        position_N = tl.load(k_positions + columns, mask=in_tile, other=0).to(tl.int32)
    total_k_ND = tl.zeros([N, D], tl.float32)
    total_v_ND = tl.zeros([N, D], tl.float32)
    for start in range(begin, end, M):
        rows = start + tl.arange(0, M)
        valid = rows < end
        q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=valid[:, None], other=0.0)
        packed = (rows[:, None] * H + head) * D + features[None, :]
        grad_MD = tl.load(grad + packed, mask=valid[:, None], other=0.0)
        log_sum_M = tl.load(log_sums + head * queries + rows, mask=valid, other=0.0)
        delta_M = tl.load(deltas + head * queries + rows, mask=valid, other=0.0)
        sentence_M = tl.load(q_sentences + rows, mask=valid, other=-1)
        visible = sentence_N[:, None] == sentence_M[None, :]
        if CAUSAL:
            visible = visible & (rows[None, :] >= columns[:, None])
        scores_NM = tl.dot(k_ND, tl.trans(q_MD)) * (scale * LOG2_E)
        weights_NM = tl.where(visible, tl.exp2(scores_NM - log_sum_M[None, :]), 0.0)
        grad_weights_NM = tl.dot(v_ND, tl.trans(grad_MD))
        dropped_NM = weights_NM
        if DROPS:
            place_M = tl.load(q_places + rows, mask=valid, other=0)
            row_bits = hash_bits(place_M * H + head, seed_0, seed_1)
            keep = keep_weights(row_bits[None, :], position_N[:, None], threshold)
            grad_weights_NM = tl.where(keep, grad_weights_NM * keep_scale, 0.0)
            dropped_NM = tl.where(keep, weights_NM * keep_scale, 0.0)
        total_v_ND = tl.dot(dropped_NM.to(grad_MD.dtype), grad_MD, total_v_ND)
        grad_scores_NM = weights_NM * (grad_weights_NM - delta_M[None, :]) * scale
        total_k_ND = tl.dot(grad_scores_NM.to(q_MD.dtype), q_MD, total_k_ND)
    indexes_ND = columns[:, None] * grad_row + head * D + features[None, :]
    tl.store(grad_k + indexes_ND, total_k_ND.to(k_ND.dtype), mask=in_tile[:, None])
    tl.store(grad_v + indexes_ND, total_v_ND.to(v_ND.dtype), mask=in_tile[:, None])
