"""Export to Hugging Face: the default architecture as M2M100, which computes the same function."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.model.architecture import Architecture
from dragoman.model.huggingface_weights import HUGGINGFACE_WEIGHTS_FILE, to_huggingface
from dragoman.model.model_folder import ModelDescription
from dragoman.model.transformer import Transformer

M2M100_SETTINGS = {"norm": "layernorm", "activation": "relu", "positions": "sinusoidal", "qk_norm": False, "bias": True}
"""The model settings that M2M100 supports."""
MAX_POSITIONS = 1024
"""Sinusoidal positions have no limit, but the configuration needs one."""

_BPE, _UNIGRAM = 2, 1  # SentencePiece's model types


def unsupported_features(architecture: Architecture, tokenizer: Tokenizer) -> list[str]:
    """Reasons why a model cannot be exported as M2M100; empty if it can."""
    problems = [
        f"model.{name} = {getattr(architecture, name)} (only {only} is supported)"
        for name, only in M2M100_SETTINGS.items()
        if getattr(architecture, name) != only
    ]
    if tokenizer.pad_id != architecture.first_position - 1:  # M2M100 numbers positions from its padding id + 1 on
        problems.append(f"a tokenizer whose padding has id {tokenizer.pad_id} (it must be {architecture.first_position - 1})")
    return problems


def write(model: Transformer, description: ModelDescription, special_tokens: SpecialTokens, folder: Path) -> None:
    """Write a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` can load."""
    architecture, tokenizer = description.architecture, description.tokenizer
    if problems := unsupported_features(architecture, tokenizer):
        raise DragomanError(
            f"Hugging Face's M2M100 does not support {'; '.join(problems)}: "
            "export to ctranslate2 or safetensors instead."
        )
    save_file(to_huggingface(model), folder / HUGGINGFACE_WEIGHTS_FILE, metadata={"format": "pt"})
    ids = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.decoder_start_id,
        "eos_token_id": tokenizer.eos_id,
        "decoder_start_token_id": tokenizer.decoder_start_id,
    }
    write_json(folder / "config.json", {**_model_config(architecture), **ids})
    write_json(folder / "generation_config.json", {**ids, **_generation_settings(description, special_tokens)})
    write_json(folder / "tokenizer.json", _tokenizer(tokenizer))
    pieces = tokenizer.pieces
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": pieces[ids["pad_token_id"] or 0],
            "unk_token": pieces[tokenizer.unk_id],
            "bos_token": pieces[tokenizer.decoder_start_id],
            "eos_token": pieces[tokenizer.eos_id],
            "model_max_length": MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
        },
    )


def _model_config(a: Architecture) -> dict[str, Any]:
    config: dict[str, Any] = {"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100"}
    for side, layers in (("encoder", a.encoder_layers), ("decoder", a.decoder_layers)):
        config |= {
            f"{side}_layers": layers,
            f"{side}_attention_heads": a.heads,
            f"{side}_ffn_dim": a.feed_forward,
            f"{side}_layerdrop": 0.0,
        }
    return {
        **config,
        "vocab_size": a.vocabulary,
        "d_model": a.d_model,
        "dropout": a.dropout,
        "attention_dropout": a.attention_dropout,
        "activation_dropout": a.activation_dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "torch_dtype": "float32",
    }


def _generation_settings(description: ModelDescription, special_tokens: SpecialTokens) -> dict[str, Any]:
    return {
        "num_beams": description.decoding.beam,
        "length_penalty": description.decoding.length_penalty,
        "no_repeat_ngram_size": description.decoding.no_repeat_ngram,
        "max_length": MAX_POSITIONS,
        "suppress_tokens": list(special_tokens.forbidden),
    }


def _tokenizer(tokenizer: Tokenizer) -> Any:
    """The SentencePiece model as a Hugging Face fast tokenizer."""
    import tokenizers
    from tokenizers import decoders, models, normalizers, processors

    content = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)  # type: ignore[attr-defined]
    pieces = [piece.piece for piece in content.pieces]
    ids = {piece: token for token, piece in enumerate(pieces)}
    if content.trainer_spec.model_type == _BPE:
        made = tokenizers.Tokenizer(
            models.BPE(
                ids,
                _merges(content, ids),
                unk_token=pieces[tokenizer.unk_id],
                fuse_unk=True,
                byte_fallback=content.trainer_spec.byte_fallback,
            )
        )
    elif content.trainer_spec.model_type == _UNIGRAM:
        scores = [(piece.piece, piece.score) for piece in content.pieces]
        made = tokenizers.Tokenizer(
            models.Unigram(scores, tokenizer.unk_id, byte_fallback=content.trainer_spec.byte_fallback)
        )
    else:
        raise DragomanError("The tokenizer is neither BPE nor unigram: export to ctranslate2 or safetensors instead.")
    steps: list[Any] = []
    if content.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(content.normalizer_spec.precompiled_charsmap))
    steps += [
        normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        normalizers.Strip(),
        normalizers.Prepend("▁"),
        normalizers.Replace(" ", "▁"),
    ]
    made.normalizer = normalizers.Sequence(steps)
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {pieces[tokenizer.eos_id]}", special_tokens=[(pieces[tokenizer.eos_id], tokenizer.eos_id)]
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    control = [piece.piece for piece in content.pieces if piece.type in (piece.CONTROL, piece.UNKNOWN)]
    made.add_special_tokens(control)
    return json.loads(made.to_str())


def _merges(content: Any, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to merge two pieces into a third, in SentencePiece's order of preference."""
    merges = []
    for piece in content.pieces:
        if piece.type != piece.NORMAL:
            continue
        splits = [
            (piece.piece[:cut], piece.piece[cut:])
            for cut in range(1, len(piece.piece))
            if piece.piece[:cut] in ids and piece.piece[cut:] in ids
        ]
        splits.sort(key=lambda split: (ids[split[0]], ids[split[1]]))
        merges += [(piece.score, split) for split in splits]
    return [split for _, split in sorted(merges, key=lambda merge: -merge[0])]
