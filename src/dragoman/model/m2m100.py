"""Weights under the names of Hugging Face's M2M100, which computes the same function as our default architecture."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer

M2M100_WEIGHTS_FILE = "model.safetensors"
"""Name of the weights in a Hugging Face folder."""

_LAYER_NAMES = {
    "self_attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention.out": ["self_attn.out_proj"],
    "self_attention_norm": ["self_attn_layer_norm"],
    "feed_forward.up_projection": ["fc1"],
    "feed_forward.down_projection": ["fc2"],
    "feed_forward_norm": ["final_layer_norm"],
}
_CROSS_ATTENTION_NAMES = {
    "cross_attention.query": ["encoder_attn.q_proj"],
    "cross_attention.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross_attention.out": ["encoder_attn.out_proj"],
    "cross_attention_norm": ["encoder_attn_layer_norm"],
}


def to_m2m100(model: Transformer) -> dict[str, Tensor]:
    """The weights under M2M100's names; the shared embedding matrix once."""
    state = model.state_dict()
    return {
        name: part.contiguous().cpu()
        for ours, theirs in weight_names(model.architecture).items()
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True)
    }


def from_m2m100(weights: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """The weights under our names. Missing weights are left out, for the caller to report."""
    return {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in weight_names(architecture).items()
        if all(name in weights for name in theirs)
    }


def weight_names(architecture: Architecture) -> dict[str, list[str]]:
    """For each of our weights, the M2M100 weights that it concatenates."""
    table = {"embedding.weight": ["model.shared.weight"]}
    for kind in ("weight", "bias"):
        for side, layers in (("encoder", architecture.encoder_layers), ("decoder", architecture.decoder_layers)):
            table[f"{side}_norm.{kind}"] = [f"model.{side}.layer_norm.{kind}"]
            for index in range(layers):
                names = _LAYER_NAMES if side == "encoder" else {**_LAYER_NAMES, **_CROSS_ATTENTION_NAMES}
                for ours, theirs in names.items():
                    table[f"{side}.{index}.{ours}.{kind}"] = [
                        f"model.{side}.layers.{index}.{name}.{kind}" for name in theirs
                    ]
    return table
