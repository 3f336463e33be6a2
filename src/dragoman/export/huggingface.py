"""Our classic architecture as Hugging Face's M2M100, which computes the same from the same weights; and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor

from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.beam_search import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.model.architecture import Architecture
from dragoman.model.model_folder import ModelDescription, StoredModel, put_weights, read_description, read_tensors
from dragoman.model.transformer import FIRST_POSITION, Transformer

WEIGHTS_FILE = "model.safetensors"
CLASSIC = {"norm": "layernorm", "activation": "relu", "positions": "sinusoidal", "qk_norm": False, "bias": True}
"""What M2M100 can express."""
LONGEST = 1024
"""Positions that are promised: the waves have no end, but the configuration wants one."""

_BPE, _UNIGRAM = 2, 1  # in SentencePiece's own numbering


def is_huggingface(folder: Path) -> bool:
    return (folder / WEIGHTS_FILE).is_file()


def find_obstacles(architecture: Architecture, tokenizer: Tokenizer) -> list[str]:
    """Why a model cannot be expressed as M2M100; nothing where it can."""
    problems = [
        f"model.{name} = {getattr(architecture, name)} (it has only {only})"
        for name, only in CLASSIC.items()
        if getattr(architecture, name) != only
    ]
    if tokenizer.pad_id != FIRST_POSITION - 1:  # M2M100 counts positions from its padding's id on
        problems.append(f"a tokenizer whose padding has id {tokenizer.pad_id} (it must be {FIRST_POSITION - 1})")
    return problems


def write(model: Transformer, description: ModelDescription, marks: SpecialTokens, folder: Path) -> None:
    """A folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` load."""
    architecture, tokenizer = description.architecture, description.tokenizer
    if problems := find_obstacles(architecture, tokenizer):
        raise DragomanError(
            f"Hugging Face's M2M100 cannot express {'; '.join(problems)}: export to ctranslate2 or safetensors instead."
        )
    save_file(to_m2m100(model), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    ids = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.decoder_start_id,
        "eos_token_id": tokenizer.eos_id,
        "decoder_start_token_id": tokenizer.decoder_start_id,
    }
    write_json(folder / "config.json", {**_shape(architecture), **ids})
    write_json(folder / "generation_config.json", {**ids, **_search(description, marks)})
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
            "model_max_length": LONGEST,
            "clean_up_tokenization_spaces": False,
        },
    )


def read_m2m100(folder: Path, device: str = "cpu") -> StoredModel:
    """A folder that `write` made, as our own model."""
    description = read_description(folder)
    model = Transformer(description.architecture)
    theirs = read_tensors(folder / WEIGHTS_FILE)
    path = folder / WEIGHTS_FILE
    put_weights(model, from_m2m100(theirs, description.architecture), path)
    return StoredModel(model.to(device).eval(), description)


def names(architecture: Architecture) -> dict[str, list[str]]:
    """For each of our weights, those of M2M100 that lie in it one below the other."""
    table = {"embedding.weight": ["model.shared.weight"]}
    for kind in ("weight", "bias"):
        for side, layers in (("encoder", architecture.encoder_layers), ("decoder", architecture.decoder_layers)):
            table[f"{side}_norm.{kind}"] = [f"model.{side}.layer_norm.{kind}"]
            for index in range(layers):
                parts = _LAYER_NAMES if side == "encoder" else {**_LAYER_NAMES, **_CROSS_NAMES}
                for ours, theirs in parts.items():
                    table[f"{side}.{index}.{ours}.{kind}"] = [
                        f"model.{side}.layers.{index}.{name}.{kind}" for name in theirs
                    ]
    return table


_LAYER_NAMES = {
    "self_attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention.out": ["self_attn.out_proj"],
    "self_attention_norm": ["self_attn_layer_norm"],
    "feed_forward.widen": ["fc1"],
    "feed_forward.narrow": ["fc2"],
    "feed_forward_norm": ["final_layer_norm"],
}
_CROSS_NAMES = {
    "cross_attention.query": ["encoder_attn.q_proj"],
    "cross_attention.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross_attention.out": ["encoder_attn.out_proj"],
    "cross_attention_norm": ["encoder_attn_layer_norm"],
}


def to_m2m100(model: Transformer) -> dict[str, Tensor]:
    """The weights under M2M100's names; the one matrix of embeddings once."""
    state = model.state_dict()
    return {
        name: part.contiguous().cpu()
        for ours, theirs in names(model.architecture).items()
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True)
    }


def from_m2m100(weights: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """The weights under our names; what is missing stays missing, for the caller to name."""
    return {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in names(architecture).items()
        if all(name in weights for name in theirs)
    }


def _shape(a: Architecture) -> dict[str, Any]:
    shape: dict[str, Any] = {"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100"}
    for side, layers in (("encoder", a.encoder_layers), ("decoder", a.decoder_layers)):
        shape |= {
            f"{side}_layers": layers,
            f"{side}_attention_heads": a.heads,
            f"{side}_ffn_dim": a.feed_forward,
            f"{side}_layerdrop": 0.0,
        }
    return {
        **shape,
        "vocab_size": a.vocabulary,
        "d_model": a.d_model,
        "dropout": a.dropout,
        "attention_dropout": a.attention_dropout,
        "activation_dropout": a.activation_dropout,
        "activation_function": "relu",
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "max_position_embeddings": LONGEST,
        "torch_dtype": "float32",
    }


def _search(description: ModelDescription, marks: SpecialTokens) -> dict[str, Any]:
    return {
        "num_beams": description.decoding.beam,
        "length_penalty": description.decoding.length_penalty,
        "no_repeat_ngram_size": description.decoding.no_repeat_ngram,
        "max_length": LONGEST,
        "suppress_tokens": list(marks.forbidden),
    }


def _tokenizer(tokenizer: Tokenizer) -> Any:
    """SentencePiece's model in the form of Hugging Face's fast tokenizers."""
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
    control = [tokens.piece for tokens in content.pieces if tokens.type in (tokens.CONTROL, tokens.UNKNOWN)]
    made.add_special_tokens(control)
    return json.loads(made.to_str())


def _merges(content: Any, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, the pieces that SentencePiece prefers first."""
    merges = []
    for piece in content.pieces:
        if piece.type != piece.NORMAL:
            continue
        ways = [
            (piece.piece[:cut], piece.piece[cut:])
            for cut in range(1, len(piece.piece))
            if piece.piece[:cut] in ids and piece.piece[cut:] in ids
        ]
        ways.sort(key=lambda way: (ids[way[0]], ids[way[1]]))
        merges += [(piece.score, way) for way in ways]
    return [way for _, way in sorted(merges, key=lambda merge: -merge[0])]
