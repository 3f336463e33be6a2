"""Export to Hugging Face: as M2M100 or MarianMT, which compute the same function as architectures of ours."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2

from dragoman.corpus.foreign_tokenizer import ForeignTokenizer
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.model.architecture import Architecture
from dragoman.model.huggingface_weights import HUGGINGFACE_WEIGHTS_FILE, to_huggingface
from dragoman.model.model_folder import ModelDescription
from dragoman.model.transformer import Transformer

_COMMON_SETTINGS: dict[str, list[Any]] = {
    "norm": ["layernorm"],
    "activation": ["relu", "swish"],
    "qk_norm": [False],
    "bias": [True],
}
M2M100_SETTINGS = {**_COMMON_SETTINGS, "norm_position": ["before"], "positions": ["sinusoidal"], "output_bias": [False]}
"""The model settings that M2M100 supports."""
MARIAN_SETTINGS = {**_COMMON_SETTINGS, "norm_position": ["after"], "positions": ["marian"], "first_position": [0]}
"""The model settings that MarianMT supports."""
_TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
MAX_POSITIONS = 1024
"""Sinusoidal positions have no limit, but the configuration needs one."""

_BPE, _UNIGRAM = 2, 1  # SentencePiece's model types
_CLASSES = {"before": ("m2m_100", "M2M100"), "after": ("marian", "MarianMT")}
_ARCHITECTURES = {"m2m_100": "M2M100ForConditionalGeneration", "marian": "MarianMTModel"}


def unsupported_features(architecture: Architecture, tokenizer: Tokenizer) -> list[str]:
    """Reasons why a model cannot be exported as M2M100, or MarianMT if it is post-norm; empty if it can."""
    is_marian = architecture.norm_position == "after"
    problems = [
        f"model.{name} = {getattr(architecture, name)} (only {' or '.join(map(str, allowed))} is supported)"
        for name, allowed in (MARIAN_SETTINGS if is_marian else M2M100_SETTINGS).items()
        if getattr(architecture, name) not in allowed
    ]
    pad_id = architecture.first_position - 1  # M2M100 numbers positions from its padding id + 1 on.
    if not is_marian and tokenizer.pad_id != pad_id:
        problems.append(f"a tokenizer whose padding has id {tokenizer.pad_id} (it must be {pad_id})")
    return problems


def write(model: Transformer, description: ModelDescription, special_tokens: SpecialTokens, folder: Path) -> None:
    """Write a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` can load."""
    architecture, tokenizer = description.architecture, description.tokenizer
    if problems := unsupported_features(architecture, tokenizer):
        raise DragomanError(
            f"Hugging Face's {_CLASSES[architecture.norm_position][1]} does not support {'; '.join(problems)}: "
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
    if isinstance(tokenizer, ForeignTokenizer):
        _write_foreign_tokenizer(tokenizer, description.languages, folder)
    else:
        _write_tokenizer(tokenizer, folder)


def _write_foreign_tokenizer(tokenizer: ForeignTokenizer, languages: Languages, folder: Path) -> None:
    """The original files, with the languages of the direction."""
    for name, content in tokenizer.original_files.items():
        (folder / name).write_bytes(content)
    config = json.loads(tokenizer.original_files.get(_TOKENIZER_CONFIG_FILE, b"{}"))
    if tokenizer.target_prefix:
        codes = [tokenizer.pieces[prefix[0]] for prefix in (tokenizer.source_prefix, tokenizer.target_prefix)]
        config |= zip(("src_lang", "tgt_lang"), (code.strip("_") for code in codes), strict=True)
        # M2M100's codes are not in its vocabulary file. Unless all are listed in their order, transformers writes them
        # into the text.
        codes = [piece for piece in tokenizer.pieces if re.fullmatch("__.+__", piece)]
        config["extra_special_tokens"] = config.get("extra_special_tokens") or codes
    else:
        config |= {"source_lang": languages.source, "target_lang": languages.target}
    write_json(folder / _TOKENIZER_CONFIG_FILE, config)


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    write_json(folder / "tokenizer.json", _tokenizer(tokenizer))
    pieces = tokenizer.pieces
    write_json(
        folder / _TOKENIZER_CONFIG_FILE,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": pieces[tokenizer.pad_id or 0],
            "unk_token": pieces[tokenizer.unk_id],
            "bos_token": pieces[tokenizer.decoder_start_id],
            "eos_token": pieces[tokenizer.eos_id],
            "model_max_length": MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
        },
    )


def _model_config(a: Architecture) -> dict[str, Any]:
    model_type, _ = _CLASSES[a.norm_position]
    config: dict[str, Any] = {"architectures": [_ARCHITECTURES[model_type]], "model_type": model_type}
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
        "activation_function": a.activation,
        "scale_embedding": a.scale_embedding,
        "tie_word_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "torch_dtype": "float32",
    }


def _generation_settings(description: ModelDescription, special_tokens: SpecialTokens) -> dict[str, Any]:
    prefix = special_tokens.target_prefix
    return {
        # It is forced at the beginning, which may not be in `suppress_tokens`, and forbidden later.
        **({"forced_bos_token_id": prefix[0], "bad_words_ids": [[prefix[0]]]} if prefix else {}),
        "num_beams": description.decoding.beam,
        "length_penalty": description.decoding.length_penalty,
        "no_repeat_ngram_size": description.decoding.no_repeat_ngram,
        "max_length": MAX_POSITIONS,
        "suppress_tokens": [token for token in special_tokens.forbidden if token not in prefix],
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
