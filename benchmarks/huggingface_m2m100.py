"""Hugging Face's M2M100 with the weights of a model of ours, as a peer for beam search."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dragoman.model.huggingface_weights import to_huggingface
from dragoman.model.transformer import Transformer


def make_m2m100(model: Transformer, start: int, end: int, pad: int) -> Any:
    """M2M100ForConditionalGeneration with the weights of a model in the original Transformer's architecture."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    a = model.architecture
    config = M2M100Config(
        vocab_size=a.vocabulary, d_model=a.d_model, encoder_layers=a.encoder_layers, decoder_layers=a.decoder_layers,
        encoder_attention_heads=a.heads, decoder_attention_heads=a.heads, encoder_ffn_dim=a.feed_forward,
        decoder_ffn_dim=a.feed_forward, dropout=0.0, attention_dropout=0.0, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0, scale_embedding=True, activation_function="relu", pad_token_id=pad, bos_token_id=start,
        eos_token_id=end, decoder_start_token_id=start,
    )  # fmt: skip
    peer = M2M100ForConditionalGeneration(config).eval()
    missing, unexpected = peer.load_state_dict(m2m100_weights(model), strict=False)
    assert not missing, missing
    assert not unexpected, unexpected
    return peer.to(model.embedding.weight.device)


def generate(
    peer: Any,
    sources: Sequence[Sequence[int]],
    *,
    beam: int,
    max_new_tokens: int,
    forbidden: Sequence[int],
    length_penalty: float = 0.0,
) -> list[list[int]]:
    """Best translation of each source by Hugging Face's beam search, without special tokens.

    Scores are divided by length^length_penalty; 0 is no penalty.
    """
    config = peer.config
    width = max(map(len, sources))
    padded = torch.tensor([[*source, *[config.pad_token_id] * (width - len(source))] for source in sources])
    lengths = torch.tensor([len(source) for source in sources])
    with torch.inference_mode():
        out = peer.generate(
            input_ids=padded.to(peer.device),
            attention_mask=(torch.arange(width) < lengths[:, None]).long().to(peer.device),
            num_beams=beam, do_sample=False, length_penalty=length_penalty, early_stopping=False,
            max_new_tokens=max_new_tokens, suppress_tokens=list(forbidden),
        )  # fmt: skip
    special_tokens = {config.pad_token_id, config.bos_token_id, config.eos_token_id}
    return [[token for token in row if token not in special_tokens] for row in out.tolist()]


def m2m100_weights(model: Transformer) -> dict[str, Tensor]:
    """Weights under all parameter names of M2M100ForConditionalGeneration, tied ones included."""
    weights = to_huggingface(model)
    tied = ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    return {**weights, **{f"{name}.weight": weights["model.shared.weight"] for name in tied}}
