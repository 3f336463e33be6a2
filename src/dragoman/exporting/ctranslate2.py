"""Conversion of the Transformer to CTranslate2's model specification."""

from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt
from ctranslate2.specs import attention_spec, common_spec, transformer_spec
from torch import Tensor, nn

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.model.attention import RMS_EPSILON, ROTARY_BASE, CrossAttention, SelfAttention
from dragoman.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Transformer

FORBIDDEN_BIAS = -1e4
"""Output bias of forbidden tokens. Finite, so that float16 can hold it and no sum of it is NaN."""
DEFAULT_POSITIONS = ("sinusoidal", 1)
"""Positions that CTranslate2 computes itself, for sentences of any length."""
MAX_POSITIONS = 4096
"""Positions of models with another kind of sinusoidal positions, which are stored as a table."""


def specification(
    model: Transformer, tokenizer: Tokenizer, special_tokens: SpecialTokens, *, adds_source_prefix: bool = False
) -> transformer_spec.TransformerSpec:
    """The model with its weights, ready to be quantized and saved.

    With `adds_source_prefix`, CTranslate2 itself puts the prefix of the tokenizer, one token, before each source.
    """
    a = model.architecture
    if a.qk_norm:
        # It normalizes the queries of cross-attention over all heads together, whatever the specification says.
        raise DragomanError(
            "CTranslate2 cannot run model.qk_norm = true: export to safetensors instead, or train without it."
        )
    options = {
        "num_heads": a.heads,
        "pre_norm": a.norm_position == "before",
        "activation": common_spec.Activation.RELU if a.activation == "relu" else common_spec.Activation.SWISH,
        "ffn_glu": a.activation == "swiglu",
        "rms_norm": a.norm == "rmsnorm",
    }
    if a.positions == "rotary":
        options |= {"rotary_dim": a.head_size, "rotary_interleave": False, "rotary_base": ROTARY_BASE}
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(a.encoder_layers, **options),
        # Alignments are the attention of the last layer, averaged over all heads, as on torch.
        transformer_spec.TransformerDecoderSpec(a.decoder_layers, alignment_heads=a.heads, **options),
    )
    _set_layers(spec, model)
    if model.positions is not None and (a.positions, a.first_position) != DEFAULT_POSITIONS:
        table = _to_numpy(model.positions.make_table(MAX_POSITIONS))
        spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = table
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = a.scale_embedding
    embedding = _to_numpy(model.embedding.weight)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    bias = np.zeros(a.vocabulary, dtype=np.float32)
    if model.output_bias is not None:
        bias += _to_numpy(model.output_bias)
    bias[list(special_tokens.forbidden)] = FORBIDDEN_BIAS
    spec.decoder.projection.bias = bias
    _set_vocabulary(spec, tokenizer, a.vocabulary)
    if adds_source_prefix and tokenizer.source_prefix:
        [prefix] = tokenizer.source_prefix
        spec.config.add_source_bos, spec.config.bos_token = True, tokenizer.pieces[prefix]
    spec.config.layer_norm_epsilon = RMS_EPSILON if a.norm == "rmsnorm" else _epsilon(model)
    return spec


def _epsilon(model: Transformer) -> float:
    norm = next(iter(model.encoder)).self_attention_norm
    assert isinstance(norm, nn.LayerNorm)
    return norm.eps


def _set_vocabulary(spec: transformer_spec.TransformerSpec, tokenizer: Tokenizer, rows: int) -> None:
    pieces = [*tokenizer.pieces, *(f"<padding {row}>" for row in range(tokenizer.vocab_size, rows))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[tokenizer.unk_id]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[tokenizer.decoder_start_id]
    spec.config.eos_token = pieces[tokenizer.eos_id]
    spec.config.add_source_eos = True


def _set_layers(spec: transformer_spec.TransformerSpec, model: Transformer) -> None:
    if model.encoder_norm is not None and model.decoder_norm is not None:
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    encoder, decoder = cast(Iterable[EncoderLayer], model.encoder), cast(Iterable[DecoderLayer], model.decoder)
    for layer_spec, encoder_layer in zip(spec.encoder.layer, encoder, strict=True):
        _set_self_attention(layer_spec.self_attention, encoder_layer.self_attention, encoder_layer.self_attention_norm)
        _set_feed_forward(layer_spec.ffn, encoder_layer.feed_forward, encoder_layer.feed_forward_norm)
    for layer_spec, decoder_layer in zip(spec.decoder.layer, decoder, strict=True):
        _set_self_attention(layer_spec.self_attention, decoder_layer.self_attention, decoder_layer.self_attention_norm)
        _set_cross_attention(layer_spec.attention, decoder_layer.cross_attention, decoder_layer.cross_attention_norm)
        _set_feed_forward(layer_spec.ffn, decoder_layer.feed_forward, decoder_layer.feed_forward_norm)


def _set_self_attention(spec: attention_spec.MultiHeadAttentionSpec, attention: SelfAttention, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear[0], attention.qkv)
    _set_linear(spec.linear[1], attention.out)


def _set_cross_attention(
    spec: attention_spec.MultiHeadAttentionSpec, attention: CrossAttention, norm: nn.Module
) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear[0], attention.query)
    _set_linear(spec.linear[1], attention.key_value)
    _set_linear(spec.linear[2], attention.out)


def _set_feed_forward(spec: transformer_spec.FeedForwardSpec, feed_forward: FeedForward, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    up_projection = feed_forward.up_projection
    if feed_forward.gated:
        _set_linear(spec.linear_0, up_projection, part=0, parts=2)
        _set_linear(spec.linear_0_noact, up_projection, part=1, parts=2)
    else:
        _set_linear(spec.linear_0, up_projection)
    _set_linear(spec.linear_1, feed_forward.down_projection)


def _set_linear(spec: common_spec.LinearSpec, linear: nn.Linear, part: int = 0, parts: int = 1) -> None:
    spec.weight = _to_numpy(linear.weight.chunk(parts)[part])
    if linear.bias is not None:
        spec.bias = _to_numpy(linear.bias.chunk(parts)[part])


def _set_norm(spec: common_spec.LayerNormSpec, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _to_numpy(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _to_numpy(norm.bias)


def _to_numpy(tensor: Tensor) -> npt.NDArray[np.float32]:
    return tensor.detach().float().cpu().contiguous().numpy()
