"""Fused linear layer and cross-entropy: the [tokens, vocabulary] logits are never in memory all at once.

Tokens are processed in chunks. The forward pass computes a chunk's logits, its loss and its gradients; the backward
pass only scales the gradients. So memory does not grow with the number of tokens, and no product is computed twice.

Label smoothing is that of torch and fairseq: (1 - smoothing) * nll + smoothing * mean over the vocabulary of -log p.
Rows that only round up the vocabulary are classes like any other: they get their share of smoothing and become
improbable in training.

Two terms need no pass over the vocabulary. The sum of a token's logits is its hidden vector times the sum of all
output vectors, and the constant that smoothing adds to every logit's gradient has rank one. A bias of the logits, if
there is one, is a constant, as in MarianMT.

Shapes: T tokens, C tokens of a chunk, V vocabulary, d features.
"""

from typing import Any

import torch
from torch import Tensor

from dragoman.batching.packed_batch import IGNORED_LABEL
from dragoman.model.kernels.availability import can_run_kernels

CPU_CHUNK_TOKENS = 512
"""Enough for full speed of the products, with logits that fit into a CPU's last-level cache (V = 8,192: 16 MB)."""
GPU_CHUNK_TOKENS = 8192
"""Enough to fill a GPU (V = 32,768: 1 GB)."""


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sums over tokens of the smoothed loss and of the negative log-likelihood, in float32 or wider.

    hidden [T, d], weight [V, d], labels [T] with `IGNORED_LABEL` where a token does not count, bias [V]. Only the first
    sum has a gradient, and not by the bias. Under autocast the products run in its type; softmax and sums do not.
    """
    device_type = hidden.device.type
    if torch.is_autocast_enabled(device_type):
        hidden = hidden.to(torch.get_autocast_dtype(device_type))
    with torch.autocast(device_type, enabled=False):
        if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
            if can_run_kernels(hidden):
                loss_sum, nll_sum = _FusedLinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
                    hidden, weight, labels, smoothing, bias
                )
                return loss_sum, nll_sum
            weight = weight.to(hidden.dtype)
            loss_sum, nll_sum = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
                hidden, weight, labels, smoothing, bias
            )
            return loss_sum, nll_sum
        weight = weight.to(hidden.dtype)
        loss_sum, nll_sum, _, _ = _forward(hidden, weight, labels, smoothing, bias, with_gradients=False)
        return loss_sum, nll_sum


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        loss_sum, nll_sum, grad_hidden, grad_weight = _forward(
            hidden, weight, labels, smoothing, bias, with_gradients=True
        )
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        # `grad` is a scalar tensor: it keeps its precision without changing the type of the products.
        return grad_hidden * grad, grad_weight * grad, None, None, None


def _forward(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None, *, with_gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    T, V = hidden.shape[0], weight.shape[0]
    sum_type = torch.promote_types(hidden.dtype, torch.float32)
    weight_sum = weight.sum(0, dtype=sum_type)  # [d]
    bias_sum = 0.0 if bias is None else bias.sum(dtype=sum_type)
    chunk = CPU_CHUNK_TOKENS if hidden.device.type == "cpu" else GPU_CHUNK_TOKENS

    nll_sum, uniform_sum = hidden.new_zeros(2, dtype=sum_type).unbind()
    grad_hidden = torch.empty_like(hidden) if with_gradients else hidden.new_empty(0)
    grad_weight = torch.zeros_like(weight, dtype=sum_type) if with_gradients else weight.new_empty(0)

    for first in range(0, T, chunk):
        counted = labels[first : first + chunk, None] != IGNORED_LABEL  # [C, 1]
        h = hidden[first : first + chunk].masked_fill(~counted, 0.0)  # [C, d]
        label = labels[first : first + chunk, None].masked_fill(~counted, 0)  # [C, 1]
        logits = _product(h, weight.t(), sum_type)  # [C, V]
        if bias is not None:
            logits += bias
        label_logit = logits.gather(1, label)  # [C, 1]
        logits_sum = (h.to(sum_type) @ weight_sum)[:, None] + bias_sum  # [C, 1]
        log_p = torch.log_softmax(logits, dim=1)  # [C, V]
        nll = -log_p.gather(1, label)  # [C, 1]
        log_z = label_logit + nll
        nll_sum = nll_sum + (nll * counted).sum()
        uniform_sum = uniform_sum + ((log_z - logits_sum / V) * counted).sum()
        if with_gradients:
            # d loss / d logits = p - (1 - smoothing) * one_hot(label) - smoothing / V, the last term being added below.
            grad_logits = log_p.exp_().scatter_add_(1, label, torch.full_like(nll, smoothing - 1)).to(h.dtype)
            grad_h = _product(grad_logits, weight, sum_type) - weight_sum * (smoothing / V)
            grad_hidden[first : first + chunk] = grad_h * counted
            _add_product(grad_weight, grad_logits.t(), h)
    if with_gradients:
        total = hidden.masked_fill((labels == IGNORED_LABEL)[:, None], 0.0).sum(0, dtype=sum_type)  # [d]
        grad_weight -= total * (smoothing / V)
    loss_sum = (1 - smoothing) * nll_sum + smoothing * uniform_sum
    return loss_sum, nll_sum, grad_hidden, grad_weight.to(weight.dtype)


class _FusedLinearCrossEntropy(_LinearCrossEntropy):
    """The same on a GPU in half precision, with the weight gradient in the precision of the weights."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        from dragoman.model.kernels.loss_kernel import (
            losses_and_gradients,  # Needs Triton, which torch for CUDA includes.
        )

        tokens, vocabulary = hidden.shape[0], weight.shape[0]
        half_weight = weight.to(hidden.dtype)
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        sums = hidden.new_empty(tokens, 2, dtype=torch.float32)
        # Chunks of equal size: a small one at the end would take almost as long.
        size = -(-tokens // max(1, -(-tokens // GPU_CHUNK_TOKENS)))
        for first in range(0, tokens, size):
            chunk = slice(first, first + size)
            h = hidden[chunk]  # [C, d]
            logits = torch.mm(h, half_weight.t(), out_dtype=torch.float32)  # [C, V]
            if bias is not None:
                logits += bias
            grad_logits = h.new_empty(h.shape[0], vocabulary)
            losses_and_gradients(logits, labels[chunk], smoothing, grad_logits, sums[chunk])
            torch.mm(grad_logits, half_weight, out=grad_hidden[chunk])
            torch.addmm(grad_weight, grad_logits.t(), h, out_dtype=torch.float32, out=grad_weight)
        nll_sum, uniform_sum = sums.sum(0).unbind()
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll_sum)
        return (1 - smoothing) * nll_sum + smoothing * uniform_sum, nll_sum


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """`a @ b` in `dtype`, without rounding to the inputs' type in between if the device can."""
    if a.dtype == dtype:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += _product(a, b, total.dtype)
