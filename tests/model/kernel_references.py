"""What kernels are compared with: formulas, and batches and models to compute.

Shapes: Tq queries, Tk keys, H heads.
"""

import math

import torch
from torch import Tensor, nn

from dragoman.batching.packed_batch import Batch, Packed, SequenceLayout, pack
from dragoman.model.architecture import Architecture
from dragoman.model.dropout import COUNTER_FACTOR, hashed_bits, keep_scale, keep_threshold, mix_bits_
from dragoman.model.transformer import Transformer

CLASSIC = Architecture(
    vocabulary=512, d_model=64, heads=2, encoder_layers=2, decoder_layers=2, feed_forward=128, dropout=0.1,
    attention_dropout=0.1, activation_dropout=0.1,
)  # fmt: skip
MODERN = CLASSIC.replaced(norm="rmsnorm", activation="swiglu", positions="rotary", bias=False, qk_norm=True)
MARIAN = CLASSIC.replaced(
    norm_position="after", activation="swish", positions="marian", first_position=0, output_bias=True
)


def make_model(architecture: Architecture, device: torch.device) -> Transformer:
    """A model with random weights, also where they are constant."""
    torch.manual_seed(0)
    model = Transformer(architecture)
    if model.output_bias is not None:
        nn.init.normal_(model.output_bias)
    return model.to(device)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def random_batch(seed: int, pairs: int = 40) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 90, (2, pairs), generator=generator)
    source, labels = (torch.randint(4, 512, (int(side.sum()),), generator=generator) for side in lengths)
    target = pack(labels, lengths[1])
    return Batch(pack(source, lengths[0]), Packed(labels.roll(1), target.layout), labels)


def halves_of(batch: Batch) -> list[Batch]:
    """The even and the odd pairs of a batch."""
    halves = []
    for first in (0, 1):
        sides, labels = [], []
        for packed in (batch.source, batch.target):
            bounds = packed.layout.cu_seqlens.long()
            chosen = torch.arange(first, packed.layout.sentences, 2)
            tokens = torch.cat([torch.arange(bounds[number], bounds[number + 1]) for number in chosen])
            sides.append(pack(packed.tokens[tokens], bounds.diff()[chosen], bounds[chosen]))
            labels.append(tokens)
        halves.append(Batch(*sides, batch.labels[labels[1]]))
    return halves


def reference_weights(
    q: Tensor, k: Tensor, queries: SequenceLayout, keys: SequenceLayout, causal: bool, rate: float, seed: Tensor
) -> Tensor:
    """[H, Tq, Tk]: the attention weights by their definition."""
    assert queries.sentence_ids is not None
    assert keys.sentence_ids is not None
    (Tq, H, D), Tk = q.shape, k.shape[0]
    rows, columns, heads = (torch.arange(count, dtype=torch.int32, device=q.device) for count in (Tq, Tk, H))
    positions = keys.positions.int()
    last = int(keys.cu_seqlens[-1])
    visible = (queries.sentence_ids[:, None] == keys.sentence_ids) & (columns < last)
    if causal:
        visible = visible & (rows[:, None] >= columns)
    scores = torch.einsum("qhd,khd->hqk", q, k) * D**-0.5
    weights = torch.softmax(scores.masked_fill(~visible, -math.inf), -1).nan_to_num(0.0)
    if rate == 0.0:
        return weights
    row_bits = hashed_bits(queries.places * H + heads[:, None], seed)[:, :, None]
    kept = mix_bits_(row_bits ^ positions * COUNTER_FACTOR) < keep_threshold(rate)
    return weights * kept * keep_scale(rate)
