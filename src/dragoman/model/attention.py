"""Attention over packed sentences: the only module that uses sentence boundaries.

Four implementations compute the same function: a Triton kernel on CUDA for batches of fixed size; torch's
variable-length flash attention on CUDA in half precision; torch's padded attention elsewhere; and explicit matrix
products for dropout of weights, and on a CPU in half precision, where torch's attention is three times as slow.

Shapes: T tokens (Tq queries, Tk keys), S sentences, L tokens of the longest, H heads, D features of a head, d = H*D.
"""

import inspect
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dragoman.batching.packed_batch import SequenceLayout
from dragoman.model.dropout import Dropout

ROTARY_BASE = 10_000.0
RMS_EPSILON = 1e-6

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines of each token's rotary angles, [T, 1, D/2] both."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: SequenceLayout,
    keys: SequenceLayout,
    *,
    causal: bool = False,
    drop: Dropout | None = None,
) -> Tensor:
    """Queries [Tq, H, D] attend to the keys and values [Tk, H, D] of their own sentence; returns [Tq, d].

    `causal`, for self-attention: a token attends to no later token.
    """
    drops = drop is not None and drop.active_rate > 0.0
    if not drops and _has_varlen_kernel(q):
        varlen_attn, causal_argument = _varlen_attention()
        out = varlen_attn(
            q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len,
            **(causal_argument if causal else {}),
        )  # fmt: skip
        return cast(Tensor, out).flatten(1)
    heads = q.shape[1]
    q_SHLD, k_SHLD, v_SHLD = (
        layout.pad(x.flatten(1)).view(layout.sentences, layout.max_len, heads, -1).transpose(1, 2)
        for x, layout in ((q, queries), (k, keys), (v, keys))
    )
    # Padding comes after all real tokens, so the causal mask hides it too.
    mask = None if causal or keys.has_equal_lengths else keys.padding.mask
    if drops or (q.device.type == "cpu" and q.dtype in (torch.bfloat16, torch.float16)):
        places_SL = queries.pad(queries.places[:, None]).squeeze(2)
        out_SHLD = _explicit_attention(q_SHLD, k_SHLD, v_SHLD, mask, causal, drop, places_SL)
    else:
        with without_cudnn(q.device):
            out_SHLD = F.scaled_dot_product_attention(q_SHLD, k_SHLD, v_SHLD, mask, is_causal=causal)
    return queries.unpad(out_SHLD.transpose(1, 2).flatten(2))


def attend_at_fixed_size(
    x: Tensor, y: Tensor | None, queries: SequenceLayout, keys: SequenceLayout, drop: Dropout, *, causal: bool = False
) -> Tensor:
    """The same for batches of fixed size, by the Triton kernel. `x` holds queries, keys and values, [T, 3, H, D]; or
    `x` holds the queries, [Tq, 1, H, D], and `y` keys and values, [Tk, 2, H, D]."""
    from dragoman.model.kernels import attention_kernel  # Needs Triton, which comes with torch for CUDA.

    out, _ = attention_kernel.attend(
        x, y, queries.sentence_ids, keys.sentence_ids, queries.cu_seqlens, keys.cu_seqlens,
        queries.places, keys.positions, causal, drop.active_rate, drop.active_seed,
    )  # fmt: skip
    return cast(Tensor, out).flatten(1)


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """Exclude cuDNN's attention, which spends hundreds of milliseconds on a plan for every new shape."""
    if device.type != "cuda":
        return nullcontext()
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])


def _has_varlen_kernel(q: Tensor) -> bool:
    return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and _has_flash(q.device.index)


@lru_cache
def _varlen_attention() -> tuple[Callable[..., Any], dict[str, Any]]:
    """torch's variable-length attention, and the argument that makes it causal.

    Imported at its first use: it imports torch's compiler, which takes as long as torch itself.
    """
    from torch.nn.attention.varlen import varlen_attn

    # The argument changed its name between torch releases.
    renamed = "window_size" in inspect.signature(varlen_attn).parameters
    return varlen_attn, {"window_size": (-1, 0)} if renamed else {"is_causal": True}


@lru_cache
def _has_flash(device_index: int) -> bool:
    """Flash attention needs Ampere or later."""
    return torch.cuda.get_device_capability(device_index) >= (8, 0)


def _explicit_attention(
    q_SHLD: Tensor,
    k_SHLD: Tensor,
    v_SHLD: Tensor,
    mask: Tensor | None,
    causal: bool,
    drop: Dropout | None,
    places_SL: Tensor,
) -> Tensor:
    S, H, Lq, D = q_SHLD.shape
    Lk = k_SHLD.shape[2]
    bias = q_SHLD.new_zeros(1, 1, 1)
    if causal:
        bias = q_SHLD.new_full((1, Lq, Lk), -math.inf).triu(1)
    elif mask is not None:
        bias = q_SHLD.new_zeros(S, 1, 1, Lk).masked_fill(~mask, -math.inf).expand(S, H, 1, Lk).reshape(S * H, 1, Lk)
    q_BLD, k_BLD, v_BLD = (x.reshape(S * H, -1, D) for x in (q_SHLD, k_SHLD, v_SHLD))
    scores_BLL = torch.baddbmm(bias, q_BLD, k_BLD.mT, alpha=D**-0.5)
    # float32: on a CPU a softmax in bfloat16 is imprecise and slow.
    weights_SHLL = torch.softmax(scores_BLL, dim=-1, dtype=torch.float32).view(S, H, Lq, Lk)
    if drop is not None:
        weights_SHLL = drop.weights(weights_SHLL, places_SL)
    return torch.bmm(weights_SHLL.flatten(0, 1).to(v_BLD.dtype), v_BLD).view(S, H, Lq, D)


def rotation_at(positions: Tensor, head_size: int) -> Rotation:
    """The rotary angles of [T] positions, computed once per forward pass for all layers."""
    exponents = torch.arange(0, head_size, 2, device=positions.device, dtype=torch.float32) / head_size
    angles = positions.float()[:, None, None] * ROTARY_BASE**-exponents  # [T, 1, D/2]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate [T, H, D] by each token's angles; the first half of D pairs with the second, as in Llama."""
    cos, sin = (part.to(x.dtype) for part in rotation)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class HeadNorm(nn.Module):
    """RMS norm of queries and keys, per head, which bounds the attention scores."""

    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.query = nn.RMSNorm(head_size, eps=RMS_EPSILON)
        self.key = nn.RMSNorm(head_size, eps=RMS_EPSILON)


class SelfAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(
        self, d_model: int, heads: int, *, causal: bool, bias: bool, qk_norm: bool, dropout_rate: float
    ) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, Dropout(dropout_rate)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.head_norm = HeadNorm(d_model // heads) if qk_norm else None

    def forward(self, x: Tensor, layout: SequenceLayout, rotation: Rotation | None) -> Tensor:
        """[T, d] -> [T, d]."""
        if layout.sentence_ids is not None:
            qkv = self._project_fused(x, rotation)
            y = attend_at_fixed_size(qkv, None, layout, layout, self.dropout, causal=self.causal)
        else:
            y = attend(*self.project(x, rotation), layout, layout, causal=self.causal, drop=self.dropout)
        return cast(Tensor, self.out(y))

    def _project_fused(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Queries, keys and values in one tensor, [T, 3, H, D]."""
        if self.head_norm is None and rotation is None:
            qkv: Tensor = self.qkv(x).unflatten(1, (3, self.heads, -1))
            return qkv
        return torch.stack(self.project(x, rotation), dim=1)

    def project(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [T, H, D] each: normalized, then rotated, if the architecture does so."""
        q, k, v = self.qkv(x).unflatten(1, (3, self.heads, -1)).unbind(1)
        if self.head_norm is not None:
            # Back to v's type: autocast normalizes in float32.
            q, k = self.head_norm.query(q).to(v.dtype), self.head_norm.key(k).to(v.dtype)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return q, k, v


class CrossAttention(nn.Module):
    """Multi-head attention of the target to the source. No rotary positions: those of the two sides are unrelated."""

    def __init__(self, d_model: int, heads: int, *, bias: bool, qk_norm: bool, dropout_rate: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, Dropout(dropout_rate)
        self.query = nn.Linear(d_model, d_model, bias=bias)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.head_norm = HeadNorm(d_model // heads) if qk_norm else None

    def forward(self, x: Tensor, memory: Tensor, layout: SequenceLayout, memory_layout: SequenceLayout) -> Tensor:
        """[Tq, d] attends to [Tk, d] -> [Tq, d]."""
        q = self.project_query(x)
        if layout.sentence_ids is not None:
            key_value = self._project_memory_fused(memory)
            y = attend_at_fixed_size(q[:, None], key_value, layout, memory_layout, self.dropout)
        else:
            k, v = self.project_memory(memory)
            y = attend(q, k, v, layout, memory_layout, drop=self.dropout)
        return cast(Tensor, self.out(y))

    def _project_memory_fused(self, memory: Tensor) -> Tensor:
        """Keys and values in one tensor, [T, 2, H, D]."""
        if self.head_norm is None:
            key_value: Tensor = self.key_value(memory).unflatten(1, (2, self.heads, -1))
            return key_value
        return torch.stack(self.project_memory(memory), dim=1)

    def project_query(self, x: Tensor) -> Tensor:
        """[T, d] -> [T, H, D]."""
        q: Tensor = self.query(x).unflatten(1, (self.heads, -1))
        return q if self.head_norm is None else self.head_norm.query(q).to(q.dtype)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[T, d] -> keys and values, [T, H, D] each."""
        k, v = self.key_value(memory).unflatten(1, (2, self.heads, -1)).unbind(1)
        return (k if self.head_norm is None else self.head_norm.key(k).to(v.dtype)), v
