"""Attention of one new token for each hypothesis, on a GPU: each looks at keys that lie wherever they were first put.

What was said is found through a table of rows, so that nothing moves when hypotheses change places. A source is a span
of packed tokens, read once for all hypotheses of its sentence.

Shapes: N hypotheses, S sentences, M hypotheses of a sentence, rounded up to what matrix units take, H heads (B of them
at once), D features of a head, R room for tokens, P places at once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
PAST_PLACES, PAST_HEADS, PAST_WARPS = 16, 8, 4
SOURCE_PLACES, SOURCE_WARPS = 32, 2
LEAST_ROWS = 16
"""Fewest rows that matrix units take."""


def attend_to_past(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, step: Tensor) -> Tensor:
    """q [N, H, D] looks at the places up to `step` [1], included, of keys and values [rows, R, H, D]: gives [N, d].

    `rows` [N, R] int32: where to find each place of each hypothesis.
    """
    hypotheses, heads, size = q.shape
    at_once = min(heads & -heads, PAST_HEADS)  # the largest power of two that divides the heads
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    _attend_to_past[(hypotheses, heads // at_once)](
        q, keys, values, out, rows, step, q.stride(0), q.stride(1), keys.shape[1],
        H=heads, B=at_once, D=size, P=PAST_PLACES, num_warps=PAST_WARPS,
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
        H=heads, M=max(LEAST_ROWS, triton.next_power_of_2(beam)), D=size, P=SOURCE_PLACES, num_warps=SOURCE_WARPS,
    )  # fmt: skip
    return out


@triton.jit
def _attend_to_past(
    q, keys, values, out, rows, step, q_row, q_head, room,
    H: tl.constexpr, B: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """One hypothesis and some of its heads."""
    hypothesis = tl.program_id(0).to(tl.int64)
    heads, features = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, D)
    length = tl.load(step).to(tl.int32) + 1
    q_BD = tl.load(q + hypothesis * q_row + heads[:, None] * q_head + features[None, :]).to(tl.float32)
    q_BD *= LOG2_E / tl.sqrt(D * 1.0)
    top_B = tl.full([B], float("-inf"), tl.float32)
    sum_B = tl.zeros([B], tl.float32)
    out_BD = tl.zeros([B, D], tl.float32)
    for start in range(0, length, P):
        places = start + tl.arange(0, P)
        there = places < length
        tokens = tl.load(rows + hypothesis * room + places, mask=there, other=0).to(tl.int64) * room + places
        at_PBD = (tokens[:, None, None] * H + heads[None, :, None]) * D + features[None, None, :]
        k_PBD = tl.load(keys + at_PBD, mask=there[:, None, None], other=0.0).to(tl.float32)
        v_PBD = tl.load(values + at_PBD, mask=there[:, None, None], other=0.0).to(tl.float32)
        scores_PB = tl.where(there[:, None], tl.sum(k_PBD * q_BD[None, :, :], 2), float("-inf"))
        new_top_B = tl.maximum(top_B, tl.max(scores_PB, 0))
        weights_PB = tl.exp2(scores_PB - new_top_B[None, :])
        shrink_B = tl.exp2(top_B - new_top_B)
        sum_B = sum_B * shrink_B + tl.sum(weights_PB, 0)
        out_BD = out_BD * shrink_B[:, None] + tl.sum(weights_PB[:, :, None] * v_PBD, 0)
        top_B = new_top_B
    out_BD = out_BD / sum_B[:, None]
    tl.store(out + (hypothesis * H + heads[:, None]) * D + features[None, :], out_BD.to(out.dtype.element_ty))


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
