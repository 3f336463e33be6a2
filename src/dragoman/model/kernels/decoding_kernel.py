"""Attention of one new token for each hypothesis, on a GPU: each looks at keys that lie wherever they were first put.

What was said is found through a table of rows, so that nothing moves when hypotheses change places. A source is a span
of packed tokens, read once for all hypotheses of its sentence.

Shapes: N hypotheses, S sentences, M hypotheses of a sentence, rounded up to what matrix units take, H heads, D features
of a head, R room for tokens, P places at once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
PLACES, WARPS = 32, 1
"""Both kernels wait for memory: many small programs wait together."""
LEAST_ROWS = 16
"""Fewest rows that matrix units take."""


def attend_to_past(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, step: Tensor) -> Tensor:
    """q [N, H, D] looks at the places up to `step` [1], included, of keys and values [rows, R, H, D]: gives [N, d].

    `rows` [N, R] int32: where to find each place of each hypothesis.
    """
    hypotheses, heads, size = q.shape
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    _attend_to_past[(hypotheses, heads)](
        q, keys, values, out, rows, step, q.stride(0), q.stride(1), keys.shape[1],
        H=heads, D=size, P=PLACES, num_warps=WARPS,
    )  # fmt: skip
    return out


def attend_to_source(q: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, sentences: Tensor, beam: int) -> Tensor:
    """q [N, H, D] looks at its sentence's span of packed keys and values [T, H, D]: gives [N, d].

    `bounds` int32: where each sentence begins and, one further, ends; `sentences` [S] int32: those that are searched.
    """
    hypotheses, heads, size = q.shape
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    _attend_to_source[(sentences.shape[0], heads)](
        q, keys, values, out, bounds, sentences, q.stride(0), q.stride(1), beam,
        H=heads, M=max(LEAST_ROWS, triton.next_power_of_2(beam)), D=size, P=PLACES, num_warps=WARPS,
    )  # fmt: skip
    return out


@triton.jit
def _attend_to_past(
    q, keys, values, out, rows, step, q_row, q_head, room, H: tl.constexpr, D: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """One hypothesis and one head."""
    hypothesis, head, features = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, D)
    length = tl.load(step).to(tl.int32) + 1
    q_D = tl.load(q + hypothesis * q_row + head * q_head + features).to(tl.float32) * (LOG2_E / tl.sqrt(D * 1.0))
    top = float("-inf")
    total = 0.0
    out_D = tl.zeros([D], tl.float32)
    for start in range(0, length, P):
        places = start + tl.arange(0, P)
        there = places < length
        tokens = tl.load(rows + hypothesis * room + places, mask=there, other=0).to(tl.int64) * room + places
        at_PD = (tokens[:, None] * H + head) * D + features[None, :]
        k_PD = tl.load(keys + at_PD, mask=there[:, None], other=0.0).to(tl.float32)
        v_PD = tl.load(values + at_PD, mask=there[:, None], other=0.0).to(tl.float32)
        scores_P = tl.where(there, tl.sum(k_PD * q_D[None, :], 1), float("-inf"))
        new_top = tl.maximum(top, tl.max(scores_P))
        weights_P = tl.exp2(scores_P - new_top)
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights_P)
        out_D = out_D * shrink + tl.sum(weights_P[:, None] * v_PD, 0)
        top = new_top
    tl.store(out + (hypothesis * H + head) * D + features, (out_D / total).to(out.dtype.element_ty))


@triton.jit
def _attend_to_source(
    q, keys, values, out, bounds, sentences, q_row, q_head, beam,
    H: tl.constexpr, M: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """One sentence and one head."""
    place, head, features = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, D)
    sentence = tl.load(sentences + place)
    begin, end = tl.load(bounds + sentence), tl.load(bounds + sentence + 1)
    hypotheses = place * beam + tl.arange(0, M)
    real = tl.arange(0, M) < beam
    q_MD = tl.load(
        q + hypotheses[:, None] * q_row + head * q_head + features[None, :], mask=real[:, None], other=0.0
    ).to(keys.dtype.element_ty)  # fmt: skip
    scale = LOG2_E / tl.sqrt(D * 1.0)
    top_M = tl.full([M], float("-inf"), tl.float32)
    sum_M = tl.zeros([M], tl.float32)
    out_MD = tl.zeros([M, D], tl.float32)
    for start in range(begin, end, P):
        tokens = (start + tl.arange(0, P)).to(tl.int64)
        there = tokens < end
        at_PD = (tokens[:, None] * H + head) * D + features[None, :]
        k_PD = tl.load(keys + at_PD, mask=there[:, None], other=0.0)
        v_PD = tl.load(values + at_PD, mask=there[:, None], other=0.0)
        scores_MP = tl.where(there[None, :], tl.dot(q_MD, tl.trans(k_PD)) * scale, float("-inf"))
        new_top_M = tl.maximum(top_M, tl.max(scores_MP, 1))
        weights_MP = tl.exp2(scores_MP - new_top_M[:, None])
        shrink_M = tl.exp2(top_M - new_top_M)
        sum_M = sum_M * shrink_M + tl.sum(weights_MP, 1)
        out_MD = tl.dot(weights_MP.to(v_PD.dtype), v_PD, out_MD * shrink_M[:, None])
        top_M = new_top_M
    out_MD = out_MD / sum_M[:, None]
    at_MD = (hypotheses[:, None] * H + head) * D + features[None, :]
    tl.store(out + at_MD, out_MD.to(out.dtype.element_ty), mask=real[:, None])
