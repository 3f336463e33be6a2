"""From a chunk of logits to losses and gradients in one go: what torch's operators take eight passes for.

A program takes one token. It walks over the vocabulary twice: for the largest logit and the sums, then to turn each
logit into its gradient; the second walk finds the row still in the cache.

Shapes: C tokens of a chunk, V vocabulary.
"""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16384
WARPS = 16


def losses_and_slopes(logits: Tensor, labels: Tensor, smoothing: float, slopes: Tensor, sums: Tensor) -> None:
    """Writes the gradient of the smoothed loss of [C, V] logits to `slopes`, of any float type, and each token's
    negative log-likelihood and mean of -log p over the vocabulary to `sums`, [C, 2] float32.

    Tokens with a negative label count for nothing: zeros all through.
    """
    tokens, vocabulary = logits.shape
    _losses_and_slopes[(tokens,)](
        logits, labels, slopes, sums, vocabulary, smoothing, BLOCK=BLOCK, num_warps=WARPS
    )  # fmt: skip


@triton.jit
def _losses_and_slopes(logits, labels, slopes, sums, V, smoothing, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + token)
    logits += token * V
    slopes += token * V
    top = float("-inf")
    exponentials = 0.0
    total = 0.0
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = columns < V
        x = tl.load(logits + columns, mask=inside, other=float("-inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x))
        exponentials = exponentials * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top))
        total += tl.sum(tl.where(inside, x, 0.0))
        top = new_top
    log_z = top + tl.log(exponentials)
    counts = label >= 0
    nll = log_z - tl.load(logits + tl.maximum(label, 0)).to(tl.float32)
    uniform = log_z - total / V
    tl.store(sums + 2 * token, tl.where(counts, nll, 0.0))
    tl.store(sums + 2 * token + 1, tl.where(counts, uniform, 0.0))
    for first in range(0, V, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        inside = columns < V
        x = tl.load(logits + columns, mask=inside, other=float("-inf")).to(tl.float32)
        slope = tl.exp(x - log_z) - smoothing / V - tl.where(columns == label, 1.0 - smoothing, 0.0)
        tl.store(slopes + columns, tl.where(counts, slope, 0.0).to(slopes.dtype.element_ty), mask=inside)
