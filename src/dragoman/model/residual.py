"""The residual stream: the norm before or after each sublayer, and the addition of its output."""

from typing import cast

import torch
from torch import Tensor, nn

from dragoman.model.architecture import Architecture
from dragoman.model.attention import RMS_EPSILON
from dragoman.model.dropout import Dropout
from dragoman.model.kernels.availability import can_run_kernels


def make_norm(a: Architecture) -> nn.Module:
    return nn.LayerNorm(a.d_model) if a.norm == "layernorm" else nn.RMSNorm(a.d_model, eps=RMS_EPSILON)


def apply_norm(x: Tensor, norm: nn.Module) -> Tensor:
    """The input of a sublayer: the norm of the residual stream, in the type of the matrix products."""
    return to_product_type(norm(x))


def to_product_type(x: Tensor) -> Tensor:
    """`x` in the type of the matrix products."""
    device_type = x.device.type
    return x.to(torch.get_autocast_dtype(device_type)) if torch.is_autocast_enabled(device_type) else x


def add_and_norm(
    x: Tensor, y: Tensor, drop: Dropout, norm: nn.Module, places: Tensor | None = None, *, post_norm: bool = False
) -> tuple[Tensor, Tensor]:
    """`x + dropout(y)`, the new residual stream, and its norm, the input of the next sublayer. [T, d] all.

    With `post_norm` the norm is the new residual stream, too, in the type of the old one. `places` are those of the
    tokens in the global batch, [T] int32. Only dropout needs them.
    """
    if can_run_kernels(y):
        from dragoman.model.kernels import residual_kernel  # Needs Triton, which comes with torch for CUDA.

        weight, bias = cast(Tensor, norm.weight), cast(Tensor | None, getattr(norm, "bias", None))
        epsilon = cast(float, norm.eps)
        y = y.to(x.dtype) if post_norm else y  # The norm is in y's type.
        total, normed, _, _ = residual_kernel.add_and_norm(
            x, y, weight, bias, epsilon, drop.active_rate, drop.active_seed, places
        )
        return (normed, to_product_type(normed)) if post_norm else (total, normed)
    x = drop.add(x, y, places)
    if post_norm:
        x = norm(x)
        return x, to_product_type(x)
    return x, apply_norm(x, norm)
