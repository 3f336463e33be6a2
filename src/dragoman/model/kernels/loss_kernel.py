"""Losses and gradients of a chunk of logits in one kernel, where torch's operators need eight passes.

A program processes one token. It loops over the vocabulary twice: first for the largest logit and the sums, then for
the gradient of each logit; the second loop reads the row from the cache.

Shapes: C tokens of a chunk, V vocabulary.
"""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16384
WARPS = 16


def losses_and_gradients(logits: Tensor, labels: Tensor, smoothing: float, grad_logits: Tensor, sums: Tensor) -> None:
    """Write the gradient of the smoothed loss of [C, V] logits to `grad_logits`, of any float type, and each token's
    negative log-likelihood and mean of -log p over the vocabulary to `sums`, [C, 2] float32.

    Tokens with a negative label get zeros everywhere.
    """
    tokens, vocabulary = logits.shape
    _losses_and_gradients[(tokens,)](
        logits, labels, grad_logits, sums, vocabulary, smoothing, BLOCK=BLOCK, num_warps=WARPS
    )  # fmt: skip


@triton.jit
def _losses_and_gradients(logits, labels, grad_logits, sums, V, smoothing, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + token)
    logits += token * V
    grad_logits += token * V
    top = float("-inf")
    exponentials = 0.0
    total = 0.0
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        in_range = columns < V
        x = tl.load(logits + columns, mask=in_range, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x))
        exponentials = exponentials * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top))
        total += tl.sum(tl.where(in_range, x, 0.0))
        top = new_top
    log_z = top + tl.log(exponentials)
    counts = label >= 0
    nll = log_z - tl.load(logits + tl.maximum(label, 0)).to(tl.float32)
    uniform = log_z - total / V
    tl.store(sums + 2 * token, tl.where(counts, nll, 0.0))
    tl.store(sums + 2 * token + 1, tl.where(counts, uniform, 0.0))
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        in_range = columns < V
        x = tl.load(logits + columns, mask=in_range, other=float("-inf")).to(tl.float32)
        grad = tl.exp(x - log_z) - smoothing / V - tl.where(columns == label, 1.0 - smoothing, 0.0)
        tl.store(grad_logits + columns, tl.where(counts, grad, 0.0).to(grad_logits.dtype.element_ty), mask=in_range)
