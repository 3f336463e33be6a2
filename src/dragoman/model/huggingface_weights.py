"""Weights under Hugging Face's names, which M2M100 and MarianMT share, and back.

M2M100 computes the same function as our default architecture; MarianMT that of post-norm layers with an output bias.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dragoman.model.architecture import Architecture
from dragoman.model.transformer import Transformer

HUGGINGFACE_WEIGHTS_FILE = "model.safetensors"
"""Name of the weights in a Hugging Face folder."""
SHARED_EMBEDDING = "model.shared.weight"
TIED_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
"""Names of the same matrix in other places of the model."""
TIED_OR_COMPUTED = frozenset(
    [
        *TIED_EMBEDDINGS,
        *(f"model.{side}.embed_positions.{name}" for side in ("encoder", "decoder") for name in ("weight", "weights")),
    ]
)
"""Weights that a folder may hold besides: copies of the shared embedding, and tables of sinusoidal positions."""

_OUTPUT_BIAS = "final_logits_bias"
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


def to_huggingface(model: Transformer) -> dict[str, Tensor]:
    """The weights under Hugging Face's names; the shared embedding matrix once."""
    state = model.state_dict()
    weights = {
        name: part.contiguous().cpu()
        for ours, theirs in weight_names(model.architecture).items()
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True)
    }
    if _OUTPUT_BIAS in weights:
        weights[_OUTPUT_BIAS] = weights[_OUTPUT_BIAS][None]  # [1, V] there
    return weights


def from_huggingface(weights: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """The weights under our names, in float32. Missing weights are left out, for the caller to report."""
    return {
        ours: torch.cat([weights[name].flatten() if name == _OUTPUT_BIAS else weights[name] for name in theirs]).float()
        for ours, theirs in weight_names(architecture).items()
        if all(name in weights for name in theirs)
    }


def weight_names(architecture: Architecture) -> dict[str, list[str]]:
    """For each of our weights, the Hugging Face weights that it concatenates."""
    table = {"embedding.weight": [SHARED_EMBEDDING]}
    if architecture.output_bias:
        table["output_bias"] = [_OUTPUT_BIAS]
    for kind in ("weight", "bias"):
        for side, layers in (("encoder", architecture.encoder_layers), ("decoder", architecture.decoder_layers)):
            if architecture.norm_position == "before":
                table[f"{side}_norm.{kind}"] = [f"model.{side}.layer_norm.{kind}"]
            for index in range(layers):
                names = _LAYER_NAMES if side == "encoder" else {**_LAYER_NAMES, **_CROSS_ATTENTION_NAMES}
                for ours, theirs in names.items():
                    table[f"{side}.{index}.{ours}.{kind}"] = [
                        f"model.{side}.layers.{index}.{name}.{kind}" for name in theirs
                    ]
    return table


def weight_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """The shape of every Hugging Face weight that a model of this architecture needs."""
    a = architecture
    shapes: dict[str, tuple[int, ...]] = {}
    for ours, theirs in weight_names(a).items():
        kind, module = ours.rpartition(".")[2], ours.rpartition(".")[0].rpartition(".")[2]
        rows = a.feed_forward if module == "up_projection" else a.d_model
        columns = a.feed_forward if module == "down_projection" else a.d_model
        is_matrix = kind == "weight" and "norm" not in module
        for name in theirs:
            shapes[name] = (rows, columns) if is_matrix else (rows,)
    shapes[SHARED_EMBEDDING] = (a.vocabulary, a.d_model)
    if a.output_bias:
        shapes[_OUTPUT_BIAS] = (1, a.vocabulary)
    return shapes
