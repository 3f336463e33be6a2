"""Attention over packed sentences on a GPU, with dropout of its weights, in shapes that never change.

A program takes a tile of consecutive tokens of one head, whatever sentences they belong to, and walks over the keys
from the first token of its first sentence to the last of its last; sentences that do not match are masked. So the grid
depends on the number of tokens alone, a short sentence wastes no tile, and one recording of a step serves all batches.
Tokens past the last sentence are filler: they see nothing, nothing sees them, and their output is zero.

Dropout hashes the places of query, head and key, the first two as `dropout` does, and each key by one round more. The
backward pass does it again.

Shapes: T tokens (Tq queries, Tk keys), S sentences, H heads, D features of a head; a tile has M queries, N keys.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dragoman.model.kernels.dropout_kernel import drop_arguments, hashed

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
    causal: bool,
    dropout_rate: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Each sentence's queries look at its keys and values: gives [Tq, H, D], and for the backward pass the logarithms,
    to base 2, of what the weights were divided by, [H, Tq].

    `x` [T, 3, H, D] holds queries, keys and values of sentences that look at themselves; or `x` holds queries,
    [Tq, 1, H, D], and `y` [Tk, 2, H, D] keys and values: together as projections give them, and so their gradients.
    `*_sentences` [T] int32 name the sentence of each token; `*_bounds` int32 are the first token of each sentence and,
    after the last, the number of tokens in sentences, twice. `causal` is for a sentence that looks at itself.
    """
    q, k, v = _parts(x, y)
    queries, heads, size = q.shape
    out = torch.empty(queries, heads, size, dtype=q.dtype, device=q.device)
    log_sums = torch.empty(heads, queries, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(queries, QUERY_TILE), heads)
    _forward[grid](
        q, k, v, out, log_sums, q_sentences, k_sentences, k_bounds, seed,
        *_strides(q), *_strides(k), *_strides(v), queries, *drop_arguments(dropout_rate),
        **_constants(heads, size, causal, dropout_rate),
    )  # fmt: skip
    return out, log_sums


@attend.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    queries, _parts, heads, size = x.shape
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
    causal: bool,
    dropout_rate: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """The gradients of `x` and, if there is one, of `y`."""
    q, k, v = _parts(x, y)
    (queries, heads, size), keys = q.shape, k.shape[0]
    grad = grad.contiguous()
    gradients = [torch.empty(each.shape, dtype=x.dtype, device=x.device) for each in (x, y) if each is not None]
    grad_q, grad_k, grad_v = _parts(*gradients)
    shares = torch.empty_like(log_sums)
    inputs = q, k, v, grad, log_sums, shares, q_sentences, k_sentences, seed
    strides = *_strides(q), *_strides(k), *_strides(v)
    drops = drop_arguments(dropout_rate)
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


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.causal, ctx.dropout_rate, seed = inputs
    ctx.save_for_backward(*output, *tensors, seed)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, seed = ctx.saved_tensors
    gradients = attend_backward(grad, *tensors, ctx.causal, ctx.dropout_rate, seed)
    return (*gradients, *(None for _ in range(9 - len(gradients))))


attend.register_autograd(_backward, setup_context=_keep)


def _parts(x: Tensor, y: Tensor | None = None) -> tuple[Tensor, ...]:
    """Queries, keys and values, [T, H, D] each."""
    return x.unbind(1) if y is None else (x[:, 0], *y.unbind(1))


def _strides(x: Tensor) -> tuple[int, int]:
    if x.stride(2) != 1:
        raise ValueError("the features of a head must lie together in memory")
    return x.stride(0), x.stride(1)


def _constants(heads: int, size: int, causal: bool, dropout_rate: float) -> dict[str, Any]:
    return {
        "H": heads, "D": size, "M": QUERY_TILE, "N": KEY_TILE, "CAUSAL": causal, "DROPS": dropout_rate > 0.0,
        "num_warps": WARPS, "num_stages": STAGES,
    }  # fmt: skip


@triton.jit
def _keeps(row_bits, columns, threshold):
    """Which weights dropout keeps, for row bits and columns of any two shapes that broadcast."""
    x = (row_bits.to(tl.uint32, bitcast=True) ^ columns.to(tl.uint32)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x.to(tl.int32, bitcast=True) < threshold


@triton.jit
def _forward(
    q, k, v, out, log_sums, q_sentences, k_sentences, k_bounds, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, queries, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    first, head = tl.program_id(0) * M, tl.program_id(1)
    rows, features = first + tl.arange(0, M), tl.arange(0, D)
    inside = rows < queries
    sentence_M = tl.load(q_sentences + rows, mask=inside, other=-1)
    begin = tl.load(k_bounds + tl.load(q_sentences + first))
    end = tl.load(k_bounds + tl.load(q_sentences + tl.minimum(first + M, queries) - 1) + 1)
    if CAUSAL:
        end = tl.minimum(end, first + M)
    q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=inside[:, None], other=0.0)
    scale = LOG2_E / tl.sqrt(D * 1.0)
    if DROPS:
        seed_0, seed_1 = tl.load(seed), tl.load(seed + 1)
        row_bits = hashed(rows * H + head, seed_0, seed_1)
    top_M = tl.full([M], float("-inf"), tl.float32)
    sum_M = tl.zeros([M], tl.float32)
    out_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, N):
        columns = start + tl.arange(0, N)
        there = columns < end
        k_DN = tl.load(k + columns[None, :] * k_row + head * k_head + features[:, None], mask=there[None, :], other=0.0)
        v_ND = tl.load(v + columns[:, None] * v_row + head * v_head + features[None, :], mask=there[:, None], other=0.0)
        sentence_N = tl.load(k_sentences + columns, mask=there, other=-2)
        seen = sentence_M[:, None] == sentence_N[None, :]
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        scores_MN = tl.where(seen, tl.dot(q_MD, k_DN) * scale, float("-inf"))
        new_top_M = tl.maximum(top_M, tl.max(scores_MN, 1))
        # A row that has seen nothing yet has no largest score: any finite number does.
        safe_top_M = tl.where(new_top_M == float("-inf"), 0.0, new_top_M)
        weights_MN = tl.exp2(scores_MN - safe_top_M[:, None])
        shrink_M = tl.exp2(top_M - safe_top_M)
        sum_M = sum_M * shrink_M + tl.sum(weights_MN, 1)
        if DROPS:
            kept = _keeps(row_bits[:, None], columns[None, :], threshold)
            weights_MN = tl.where(kept, weights_MN, 0.0)
        out_MD = tl.dot(weights_MN.to(v_ND.dtype), v_ND, out_MD * shrink_M[:, None])
        top_M = new_top_M
    sees = sum_M > 0.0
    safe_sum_M = tl.where(sees, sum_M, 1.0)
    out_MD = out_MD * (keep_scale / safe_sum_M)[:, None]
    log_sum_M = tl.where(sees, top_M + tl.log2(safe_sum_M), 0.0)
    tl.store(out + (rows[:, None] * H + head) * D + features[None, :], out_MD.to(q_MD.dtype), mask=inside[:, None])
    tl.store(log_sums + head * queries + rows, log_sum_M, mask=inside)


@triton.jit
def _backward_queries(
    grad_q, out, k_bounds, q, k, v, grad, log_sums, shares, q_sentences, k_sentences, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, queries, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """A tile of queries collects its gradient from the keys it saw, and notes what flows back into its sums."""
    first, head = tl.program_id(0) * M, tl.program_id(1)
    rows, features = first + tl.arange(0, M), tl.arange(0, D)
    inside = rows < queries
    sentence_M = tl.load(q_sentences + rows, mask=inside, other=-1)
    begin = tl.load(k_bounds + tl.load(q_sentences + first))
    end = tl.load(k_bounds + tl.load(q_sentences + tl.minimum(first + M, queries) - 1) + 1)
    if CAUSAL:
        end = tl.minimum(end, first + M)
    q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=inside[:, None], other=0.0)
    packed = (rows[:, None] * H + head) * D + features[None, :]
    out_MD = tl.load(out + packed, mask=inside[:, None], other=0.0)
    grad_MD = tl.load(grad + packed, mask=inside[:, None], other=0.0)
    log_sum_M = tl.load(log_sums + head * queries + rows, mask=inside, other=0.0)
    share_M = tl.sum(out_MD.to(tl.float32) * grad_MD.to(tl.float32), 1)
    tl.store(shares + head * queries + rows, share_M, mask=inside)
    scale = 1.0 / tl.sqrt(D * 1.0)
    if DROPS:
        seed_0, seed_1 = tl.load(seed), tl.load(seed + 1)
        row_bits = hashed(rows * H + head, seed_0, seed_1)
    total_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, N):
        columns = start + tl.arange(0, N)
        there = columns < end
        k_ND = tl.load(k + columns[:, None] * k_row + head * k_head + features[None, :], mask=there[:, None], other=0.0)
        v_DN = tl.load(v + columns[None, :] * v_row + head * v_head + features[:, None], mask=there[None, :], other=0.0)
        sentence_N = tl.load(k_sentences + columns, mask=there, other=-2)
        seen = sentence_M[:, None] == sentence_N[None, :]
        if CAUSAL:
            seen = seen & (rows[:, None] >= columns[None, :])
        scores_MN = tl.dot(q_MD, tl.trans(k_ND)) * (scale * LOG2_E)
        weights_MN = tl.where(seen, tl.exp2(scores_MN - log_sum_M[:, None]), 0.0)
        flow_MN = tl.dot(grad_MD, v_DN)
        if DROPS:
            kept = _keeps(row_bits[:, None], columns[None, :], threshold)
            flow_MN = tl.where(kept, flow_MN * keep_scale, 0.0)
        slopes_MN = weights_MN * (flow_MN - share_M[:, None]) * scale
        total_MD = tl.dot(slopes_MN.to(k_ND.dtype), k_ND, total_MD)
    at_MD = rows[:, None] * grad_row + head * D + features[None, :]
    tl.store(grad_q + at_MD, total_MD.to(q_MD.dtype), mask=inside[:, None])


@triton.jit
def _backward_keys(
    grad_k, grad_v, q_bounds, q, k, v, grad, log_sums, shares, q_sentences, k_sentences, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, grad_row, queries, keys, threshold, keep_scale,
    H: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """A tile of keys collects its gradients from the queries that saw it."""
    first, head = tl.program_id(0) * N, tl.program_id(1)
    columns, features = first + tl.arange(0, N), tl.arange(0, D)
    inside = columns < keys
    sentence_N = tl.load(k_sentences + columns, mask=inside, other=-2)
    begin = tl.load(q_bounds + tl.load(k_sentences + first))
    end = tl.load(q_bounds + tl.load(k_sentences + tl.minimum(first + N, keys) - 1) + 1)
    if CAUSAL:
        begin = tl.maximum(begin, first)
    k_ND = tl.load(k + columns[:, None] * k_row + head * k_head + features[None, :], mask=inside[:, None], other=0.0)
    v_ND = tl.load(v + columns[:, None] * v_row + head * v_head + features[None, :], mask=inside[:, None], other=0.0)
    scale = 1.0 / tl.sqrt(D * 1.0)
    if DROPS:
        seed_0, seed_1 = tl.load(seed), tl.load(seed + 1)
    total_k_ND = tl.zeros([N, D], tl.float32)
    total_v_ND = tl.zeros([N, D], tl.float32)
    for start in range(begin, end, M):
        rows = start + tl.arange(0, M)
        there = rows < end
        q_MD = tl.load(q + rows[:, None] * q_row + head * q_head + features[None, :], mask=there[:, None], other=0.0)
        packed = (rows[:, None] * H + head) * D + features[None, :]
        grad_MD = tl.load(grad + packed, mask=there[:, None], other=0.0)
        log_sum_M = tl.load(log_sums + head * queries + rows, mask=there, other=0.0)
        share_M = tl.load(shares + head * queries + rows, mask=there, other=0.0)
        sentence_M = tl.load(q_sentences + rows, mask=there, other=-1)
        seen = sentence_N[:, None] == sentence_M[None, :]
        if CAUSAL:
            seen = seen & (rows[None, :] >= columns[:, None])
        scores_NM = tl.dot(k_ND, tl.trans(q_MD)) * (scale * LOG2_E)
        weights_NM = tl.where(seen, tl.exp2(scores_NM - log_sum_M[None, :]), 0.0)
        flow_NM = tl.dot(v_ND, tl.trans(grad_MD))
        dropped_NM = weights_NM
        if DROPS:
            row_bits = hashed(rows * H + head, seed_0, seed_1)
            kept = _keeps(row_bits[None, :], columns[:, None], threshold)
            flow_NM = tl.where(kept, flow_NM * keep_scale, 0.0)
            dropped_NM = tl.where(kept, weights_NM * keep_scale, 0.0)
        total_v_ND = tl.dot(dropped_NM.to(grad_MD.dtype), grad_MD, total_v_ND)
        slopes_NM = weights_NM * (flow_NM - share_M[None, :]) * scale
        total_k_ND = tl.dot(slopes_NM.to(q_MD.dtype), q_MD, total_k_ND)
    at_ND = columns[:, None] * grad_row + head * D + features[None, :]
    tl.store(grad_k + at_ND, total_k_ND.to(k_ND.dtype), mask=inside[:, None])
    tl.store(grad_v + at_ND, total_v_ND.to(v_ND.dtype), mask=inside[:, None])
