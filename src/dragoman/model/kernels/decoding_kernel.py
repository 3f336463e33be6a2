"""Attention of one new token per hypothesis on a GPU, with indexed keys and values.

Keys and values of generated tokens are read through a table of cache rows, so that nothing is copied when hypotheses
are reordered. A source is a range of packed tokens, read once for all hypotheses of its sentence.

Shapes: N hypotheses, S sentences, M hypotheses of a sentence, rounded up to a tensor core tile, H heads, D features of
a head, R capacity for tokens, P positions in a block.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
BLOCK_POSITIONS, WARPS = 32, 1
"""Both kernels are memory-bound: many small programs hide the latency."""
MIN_ROWS = 16
"""Fewest rows of a tensor core tile."""


def attend_to_past(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, step: Tensor) -> Tensor:
    """q [N, H, D] attends to positions 0 to `step` [1] of keys and values [rows, R, H, D]; returns [N, d].

    `rows` [N, R] int32: the cache row of each position of each hypothesis.
    """
    hypotheses, heads, size = q.shape
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    _attend_to_past[(hypotheses, heads)](
        q, keys, values, out, rows, step, q.stride(0), q.stride(1), keys.shape[1],
        H=heads, D=size, P=BLOCK_POSITIONS, num_warps=WARPS,
    )  # fmt: skip
    return out


def attend_to_source(
    q: Tensor, keys: Tensor, values: Tensor, cu_seqlens: Tensor, sentences: Tensor, beam: int
) -> Tensor:
    """q [N, H, D] attends to the packed keys and values [T, H, D] of its sentence; returns [N, d].

    `cu_seqlens` int32: cumulative source lengths; `sentences` [S] int32: indexes of the remaining sentences.
    """
    hypotheses, heads, size = q.shape
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    _attend_to_source[(sentences.shape[0], heads)](
        q, keys, values, out, cu_seqlens, sentences, q.stride(0), q.stride(1), beam,
        H=heads, M=max(MIN_ROWS, triton.next_power_of_2(beam)), D=size, P=BLOCK_POSITIONS, num_warps=WARPS,
    )  # fmt: skip
    return out


@triton.jit
def _attend_to_past(
    q, keys, values, out, rows, step, q_row, q_head, capacity, H: tl.constexpr, D: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """One hypothesis and one head."""
    hypothesis, head, features = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, D)
    length = tl.load(step).to(tl.int32) + 1
    q_D = tl.load(q + hypothesis * q_row + head * q_head + features).to(tl.float32) * (LOG2_E / tl.sqrt(D * 1.0))
    top = float("-inf")
    total = 0.0
    out_D = tl.zeros([D], tl.float32)
    for start in range(0, length, P):
        block = start + tl.arange(0, P)
        in_range = block < length
        tokens = tl.load(rows + hypothesis * capacity + block, mask=in_range, other=0).to(tl.int64) * capacity + block
        indexes_PD = (tokens[:, None] * H + head) * D + features[None, :]
        k_PD = tl.load(keys + indexes_PD, mask=in_range[:, None], other=0.0).to(tl.float32)
        v_PD = tl.load(values + indexes_PD, mask=in_range[:, None], other=0.0).to(tl.float32)
        scores_P = tl.where(in_range, tl.sum(k_PD * q_D[None, :], 1), float("-inf"))
        new_top = tl.maximum(top, tl.max(scores_P))
        weights_P = tl.exp2(scores_P - new_top)
        rescale = tl.exp2(top - new_top)
        total = total * rescale + tl.sum(weights_P)
        out_D = out_D * rescale + tl.sum(weights_P[:, None] * v_PD, 0)
        top = new_top
    tl.store(out + (hypothesis * H + head) * D + features, (out_D / total).to(out.dtype.element_ty))


@triton.jit
def _attend_to_source(
    q, keys, values, out, cu_seqlens, sentences, q_row, q_head, beam,
    H: tl.constexpr, M: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """One sentence and one head."""
    slot, head, features = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, D)
    sentence = tl.load(sentences + slot)
    begin, end = tl.load(cu_seqlens + sentence), tl.load(cu_seqlens + sentence + 1)
    hypotheses = slot * beam + tl.arange(0, M)
    row_mask = tl.arange(0, M) < beam
    q_MD = tl.load(
        q + hypotheses[:, None] * q_row + head * q_head + features[None, :], mask=row_mask[:, None], other=0.0
    ).to(keys.dtype.element_ty)  # fmt: skip
    scale = LOG2_E / tl.sqrt(D * 1.0)
    top_M = tl.full([M], float("-inf"), tl.float32)
    sum_M = tl.zeros([M], tl.float32)
    out_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, P):
        tokens = (start + tl.arange(0, P)).to(tl.int64)
        in_range = tokens < end
        indexes_PD = (tokens[:, None] * H + head) * D + features[None, :]
        k_PD = tl.load(keys + indexes_PD, mask=in_range[:, None], other=0.0)
        v_PD = tl.load(values + indexes_PD, mask=in_range[:, None], other=0.0)
        scores_MP = tl.where(in_range[None, :], tl.dot(q_MD, tl.trans(k_PD)) * scale, float("-inf"))
        new_top_M = tl.maximum(top_M, tl.max(scores_MP, 1))
        weights_MP = tl.exp2(scores_MP - new_top_M[:, None])
        rescale_M = tl.exp2(top_M - new_top_M)
        sum_M = sum_M * rescale_M + tl.sum(weights_MP, 1)
        out_MD = tl.dot(weights_MP.to(v_PD.dtype), v_PD, out_MD * rescale_M[:, None])
        top_M = new_top_M
    out_MD = out_MD / sum_M[:, None]
    indexes_MD = (hypotheses[:, None] * H + head) * D + features[None, :]
    tl.store(out + indexes_MD, out_MD.to(out.dtype.element_ty), mask=row_mask[:, None])
