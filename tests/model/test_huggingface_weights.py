"""Weights under M2M100's names."""

import torch

from dragoman.model.architecture import Architecture
from dragoman.model.huggingface_weights import from_huggingface, to_huggingface, weight_names
from dragoman.model.transformer import Transformer

SMALL = Architecture(vocabulary=40, d_model=32, heads=4, encoder_layers=2, decoder_layers=1, feed_forward=64)


def test_renaming_weights_and_back_gives_the_same_weights() -> None:
    model = Transformer(SMALL)
    state, again = model.state_dict(), from_huggingface(to_huggingface(model), SMALL)
    assert again.keys() == state.keys() == weight_names(SMALL).keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in again.items())


def test_missing_weights_are_left_out() -> None:
    weights = to_huggingface(Transformer(SMALL))
    del weights["model.encoder.layers.0.self_attn.k_proj.weight"]
    assert "encoder.0.self_attention.qkv.weight" not in from_huggingface(weights, SMALL)
