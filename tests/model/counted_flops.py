"""FLOPs of training by torch's own counter."""

from collections.abc import Iterable

import torch
from torch.utils.flop_counter import FlopCounterMode

from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.model.architecture import Architecture
from dragoman.model.dropout import draw_seeds, seed_dropout
from dragoman.model.transformer import Transformer


def count_by_torch(architecture: Architecture, lengths: Iterable[tuple[int, int]]) -> int:
    """FLOPs of training on pairs of these lengths one by one, so that nothing is padded.

    The architecture needs dropout of attention weights: then torch multiplies explicitly, and recomputes nothing in the
    backward pass.
    """
    model = Transformer(architecture).train()
    draw_seeds(seed_dropout(model, torch.device("cpu")), run_seed=1, step=1)
    output_gradient = 0
    with FlopCounterMode(display=False) as counter:
        for source, target in lengths:
            packed = [pack_sentences([[5] * length]) for length in (source, target)]
            loss, _ = model(Batch(packed[0], packed[1], torch.full((target,), 7)))
            loss.backward()
            # The counter does not know `addmm_`, with which the loss adds up the gradient of the output matrix.
            output_gradient += 2 * target * architecture.vocabulary * architecture.d_model
    return counter.get_total_flops() + output_gradient
