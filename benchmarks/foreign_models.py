"""Folders of MarianMT, M2M100 and NLLB as transformers writes them, with random weights.

A larger `end_bias` makes translations end earlier. A larger `sharpness`, the factor of all logits, makes few tokens
probable, so that a beam search prefers words to an early end.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import torch

SIZES = {
    "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 512,
}  # fmt: skip
INIT_STD = 0.3
"""Large enough that translations differ from sentence to sentence."""
EMBEDDING_SCALE = 0.25
"""Small enough that a token seldom predicts itself, for ever."""
NLLB_LANGUAGES = ["deu_Latn", "eng_Latn", "fra_Latn"]


def make_marian(
    folder: Path, pairs: Sequence[tuple[str, str]], *, end_bias: float = 2.2, sharpness: float = 1.0, **options: Any
) -> Path:
    """A folder as those of OPUS-MT: two SentencePiece models, and one vocabulary."""
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir(parents=True)
    pieces = []
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        pieces += _train_sentencepiece(lines, folder / f"{name}.spm", 300, "unigram")
    ids = {piece: token for token, piece in enumerate(dict.fromkeys(["</s>", "<unk>", *pieces[3:-3], "<pad>"]))}
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    Path(files[2]).write_text(json.dumps(ids))
    MarianTokenizer(*files, source_lang="en", target_lang="de").save_pretrained(folder)
    settings = {
        **SIZES, "vocab_size": len(ids), "pad_token_id": ids["<pad>"], "decoder_start_token_id": ids["<pad>"],
        "eos_token_id": 0, "bos_token_id": 0, "forced_eos_token_id": None, "activation_function": "swish",
        "scale_embedding": True, "init_std": INIT_STD, **options,
    }  # fmt: skip
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**settings))
    model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias) * 0.3)
    model.final_logits_bias[0, 0] += end_bias
    model.final_logits_bias.mul_(sharpness)
    _save(model, folder, model.model.decoder.layers[-1].final_layer_norm, sharpness)
    return folder


def make_m2m100(
    folder: Path, pairs: Sequence[tuple[str, str]], *, end_bias: float = 3.3, sharpness: float = 1.0, **options: Any
) -> Path:
    """A folder as that of M2M100: one SentencePiece model, and a vocabulary that the codes of languages follow."""
    from transformers import M2M100Tokenizer

    folder.mkdir(parents=True)
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    pieces = _train_sentencepiece([side for pair in pairs for side in pair], Path(files[1]), 400, "bpe")
    ids = {piece: token for token, piece in enumerate(dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *pieces]))}
    Path(files[0]).write_text(json.dumps(ids))
    tokenizer = M2M100Tokenizer(*files, src_lang="en", tgt_lang="de")
    tokenizer.save_pretrained(folder)
    _save_m2m100(
        folder, len(ids) + len(tokenizer.lang_code_to_id) + tokenizer.num_madeup_words, end_bias, sharpness, options
    )
    return folder


def make_nllb(
    folder: Path, pairs: Sequence[tuple[str, str]], *, end_bias: float = 2.5, sharpness: float = 1.0, **options: Any
) -> Path:
    """A folder as that of NLLB: pieces, merges and codes of languages in `tokenizer.json`."""
    from transformers import NllbTokenizer

    folder.mkdir(parents=True)
    model = folder / "sentencepiece.bpe.model"
    _train_sentencepiece([side for pair in pairs for side in pair], model, 400, "bpe")
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn", "extra_special_tokens": NLLB_LANGUAGES}
    tokenizer = NllbTokenizer.from_pretrained(folder, **languages)
    tokenizer.save_pretrained(folder)
    _save_m2m100(folder, len(tokenizer), end_bias, sharpness, options)
    return folder


def _save_m2m100(folder: Path, vocabulary: int, end_bias: float, sharpness: float, options: dict[str, Any]) -> None:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    torch.manual_seed(1)
    settings = {**SIZES, "vocab_size": vocabulary, "init_std": INIT_STD, **options}
    model: Any = M2M100ForConditionalGeneration(M2M100Config(**settings))
    with torch.no_grad():  # Let sentences end.
        end = model.model.shared.weight[model.config.eos_token_id]
        model.model.decoder.layer_norm.bias.add_(end_bias * end / end.norm())
    _save(model, folder, model.model.decoder.layer_norm, sharpness)


def _save(model: Any, folder: Path, last_norm: torch.nn.LayerNorm, sharpness: float) -> None:
    with torch.no_grad():
        model.model.shared.weight.mul_(EMBEDDING_SCALE)
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.1)
        last_norm.weight.mul_(sharpness)
        last_norm.bias.mul_(sharpness)
    model.save_pretrained(folder)


def _train_sentencepiece(lines: Sequence[str], path: Path, size: int, algorithm: str) -> list[str]:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")), vocab_size=size, model_type=algorithm,
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(token) for token in range(processor.vocab_size())]
