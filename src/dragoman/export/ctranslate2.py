"""Our Transformer in CTranslate2's specification, with the same output."""

from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt
from ctranslate2.specs import attention_spec, common_spec, transformer_spec
from torch import Tensor, nn

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.beam_search import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.model.attention import RMS_EPSILON, ROTARY_BASE, CrossAttention, SelfAttention
from dragoman.model.transformer import DecoderLayer, EncoderLayer, FeedForward, Transformer

NEVER = -1e4
"""Added to the score of what may not be said. Finite, so that float16 holds it and no sum of it is undefined."""


def specification(model: Transformer, tokenizer: Tokenizer, marks: SpecialTokens) -> transformer_spec.TransformerSpec:
    """The model with all its weights, ready to be quantized and saved."""
    a = model.architecture
    if a.qk_norm:
        # It normalises the queries of cross-attention over all heads together, whatever the specification says.
        raise DragomanError(
            "CTranslate2 cannot run model.qk_norm = true: export to safetensors instead, or train without it."
        )
    shape = {
        "num_heads": a.heads,
        "pre_norm": True,
        "activation": common_spec.Activation.SWISH if a.activation == "swiglu" else common_spec.Activation.RELU,
        "ffn_glu": a.activation == "swiglu",
        "rms_norm": a.norm == "rmsnorm",
    }
    if a.positions == "rotary":
        shape |= {"rotary_dim": a.head_size, "rotary_interleave": False, "rotary_base": ROTARY_BASE}
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(a.encoder_layers, **shape),
        transformer_spec.TransformerDecoderSpec(a.decoder_layers, **shape),
    )
    _put_layers(spec, model)
    embedding = _numbers(model.embedding.weight)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    bias = np.zeros(a.vocabulary, dtype=np.float32)
    bias[list(marks.forbidden)] = NEVER
    spec.decoder.projection.bias = bias
    _put_vocabulary(spec, tokenizer, a.vocabulary)
    spec.config.layer_norm_epsilon = RMS_EPSILON if a.norm == "rmsnorm" else _epsilon(model)
    return spec


def _epsilon(model: Transformer) -> float:
    assert isinstance(model.encoder_norm, nn.LayerNorm)
    return model.encoder_norm.eps


def _put_vocabulary(spec: transformer_spec.TransformerSpec, tokenizer: Tokenizer, rows: int) -> None:
    pieces = [*tokenizer.pieces, *(f"<padding {row}>" for row in range(tokenizer.vocab_size, rows))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = pieces[tokenizer.unk_id]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[tokenizer.decoder_start_id]
    spec.config.eos_token = pieces[tokenizer.eos_id]
    spec.config.add_source_eos = True


def _put_layers(spec: transformer_spec.TransformerSpec, model: Transformer) -> None:
    _put_norm(spec.encoder.layer_norm, model.encoder_norm)
    _put_norm(spec.decoder.layer_norm, model.decoder_norm)
    encoder, decoder = cast(Iterable[EncoderLayer], model.encoder), cast(Iterable[DecoderLayer], model.decoder)
    for put, reader in zip(spec.encoder.layer, encoder, strict=True):
        _put_self_attention(put.self_attention, reader.self_attention, reader.self_attention_norm)
        _put_feed_forward(put.ffn, reader.feed_forward, reader.feed_forward_norm)
    for put, writer in zip(spec.decoder.layer, decoder, strict=True):
        _put_self_attention(put.self_attention, writer.self_attention, writer.self_attention_norm)
        _put_cross_attention(put.attention, writer.cross_attention, writer.cross_attention_norm)
        _put_feed_forward(put.ffn, writer.feed_forward, writer.feed_forward_norm)


def _put_self_attention(spec: attention_spec.MultiHeadAttentionSpec, attention: SelfAttention, norm: nn.Module) -> None:
    _put_norm(spec.layer_norm, norm)
    _put_linear(spec.linear[0], attention.qkv)
    _put_linear(spec.linear[1], attention.out)


def _put_cross_attention(
    spec: attention_spec.MultiHeadAttentionSpec, attention: CrossAttention, norm: nn.Module
) -> None:
    _put_norm(spec.layer_norm, norm)
    _put_linear(spec.linear[0], attention.query)
    _put_linear(spec.linear[1], attention.key_value)
    _put_linear(spec.linear[2], attention.out)


def _put_feed_forward(spec: transformer_spec.FeedForwardSpec, feed_forward: FeedForward, norm: nn.Module) -> None:
    _put_norm(spec.layer_norm, norm)
    widen = feed_forward.widen
    if feed_forward.gated:
        _put_linear(spec.linear_0, widen, part=0, parts=2)
        _put_linear(spec.linear_0_noact, widen, part=1, parts=2)
    else:
        _put_linear(spec.linear_0, widen)
    _put_linear(spec.linear_1, feed_forward.narrow)


def _put_linear(spec: common_spec.LinearSpec, linear: nn.Linear, part: int = 0, parts: int = 1) -> None:
    spec.weight = _numbers(linear.weight.chunk(parts)[part])
    if linear.bias is not None:
        spec.bias = _numbers(linear.bias.chunk(parts)[part])


def _put_norm(spec: common_spec.LayerNormSpec, norm: nn.Module) -> None:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    spec.gamma = _numbers(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _numbers(norm.bias)


def _numbers(tensor: Tensor) -> npt.NDArray[np.float32]:
    return tensor.detach().float().cpu().contiguous().numpy()
