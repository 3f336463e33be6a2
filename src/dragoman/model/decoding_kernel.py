"""Attention of one new token for each hypothesis, on a GPU: each looks at keys that lie wherever they were first put.

A program takes one hypothesis and some of its heads. What was said is found through a table of rows, so that nothing
moves when hypotheses change places; a source is a span of packed tokens, shared by all hypotheses of its sentence.

Shapes: N hypotheses, H heads (B of them at once), D features of a head, R room for tokens, P places at once.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
PLACES = 16
MOST_HEADS = 8
WARPS = 4


def attend_to_past(q: Tensor, keys: Tensor, values: Tensor, rows: Tensor, length: int) -> Tensor:
    """q [N, H, D] looks at the first `length` places of keys and values [rows, R, H, D]: gives [N, d].

    `rows` [N, R] int32: where to find each place of each hypothesis.
    """
    return _launch(q, keys, values, rows, rows, length, keys.shape[1], indexed=True)


def attend_to_source(q: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, sentences: Tensor) -> Tensor:
    """q [N, H, D] looks at its sentence's span of packed keys and values [T, H, D]: gives [N, d].

    `bounds` int32: where each sentence begins and, one further, ends; `sentences` [N] int32: whose each hypothesis is.
    """
    return _launch(q, keys, values, bounds, sentences, 0, 0, indexed=False)


def _launch(
    q: Tensor, keys: Tensor, values: Tensor, first: Tensor, second: Tensor, length: int, room: int, *, indexed: bool
) -> Tensor:
    hypotheses, heads, size = q.shape
    at_once = min(heads & -heads, MOST_HEADS)  # the largest power of two that divides the heads
    out = torch.empty(hypotheses, heads * size, dtype=keys.dtype, device=q.device)
    constants: dict[str, Any] = {"H": heads, "B": at_once, "D": size, "P": PLACES, "INDEXED": indexed}
    _attend[(hypotheses, heads // at_once)](
        q, keys, values, out, first, second, q.stride(0), q.stride(1), length, room, **constants, num_warps=WARPS
    )
    return out


@triton.jit(do_not_specialize=["length"])
def _attend(
    q, keys, values, out, first, second, q_row, q_head, length, room,
    H: tl.constexpr, B: tl.constexpr, D: tl.constexpr, P: tl.constexpr, INDEXED: tl.constexpr,
):  # fmt: skip
    hypothesis = tl.program_id(0).to(tl.int64)
    heads, features = tl.program_id(1) * B + tl.arange(0, B), tl.arange(0, D)
    q_BD = tl.load(q + hypothesis * q_row + heads[:, None] * q_head + features[None, :]).to(tl.float32)
    q_BD *= LOG2_E / tl.sqrt(D * 1.0)
    begin = 0
    if not INDEXED:
        sentence = tl.load(second + hypothesis)
        begin = tl.load(first + sentence)
        length = tl.load(first + sentence + 1) - begin
    top_B = tl.full([B], float("-inf"), tl.float32)
    sum_B = tl.zeros([B], tl.float32)
    out_BD = tl.zeros([B, D], tl.float32)
    for start in range(0, length, P):
        places = start + tl.arange(0, P)
        there = places < length
        if INDEXED:
            tokens = tl.load(first + hypothesis * room + places, mask=there, other=0).to(tl.int64) * room + places
        else:
            tokens = (begin + places).to(tl.int64)
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
