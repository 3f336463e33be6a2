import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from dragoman.batching.packed_batch import Batch, pack_sentences
from dragoman.model.architecture import Architecture, architecture_of, attention_flops, token_flops
from dragoman.model.dropout import draw_seeds, seed_dropout
from dragoman.model.transformer import Transformer

LENGTHS = [(90, 120), (40, 7), (150, 60), (3, 200)]


def counted_by_torch(architecture: Architecture) -> int:
    """FLOPs of training on the pairs one by one, so that nothing is padded."""
    model = Transformer(architecture).train()
    draw_seeds(seed_dropout(model, torch.device("cpu")), run_seed=1, step=1)
    with FlopCounterMode(display=False) as counter:
        for source, target in LENGTHS:
            packed = [pack_sentences([[5] * length]) for length in (source, target)]
            loss, _ = model(Batch(packed[0], packed[1], torch.full((target,), 7)))
            loss.backward()
    # The counter does not know `addmm_`, with which the loss adds up the gradient of the output matrix.
    output_gradient = sum(2 * target * architecture.vocabulary * architecture.d_model for _, target in LENGTHS)
    return counter.get_total_flops() + output_gradient


@pytest.mark.parametrize("recipe", ["tiny", "modern"])
def test_counted_flops_equal_those_of_torchs_counter(recipe):
    # With dropout of attention weights, torch multiplies explicitly and recomputes nothing in the backward pass.
    smaller = ["model.attention_dropout=0.1", "model.d_model=64", "model.heads=2", "model.feed_forward=96"]
    architecture = architecture_of(recipe, *smaller).replaced(vocabulary=200)
    lengths = np.array(LENGTHS, np.int32)
    products = sum(flops * int(tokens) for flops, tokens in zip(token_flops(architecture), lengths.sum(0), strict=True))
    attention = attention_flops(architecture, lengths)
    counted = counted_by_torch(architecture)
    assert products + attention == counted
    assert products < 0.9 * counted, "attention is a noticeable part here"


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=30))
def test_attention_of_a_corpus_is_the_sum_over_its_pairs(pairs):
    architecture = architecture_of("tiny")
    separate = [attention_flops(architecture, np.array([pair], np.int32)) for pair in pairs]
    assert attention_flops(architecture, np.array(pairs, np.int32)) == sum(separate)
