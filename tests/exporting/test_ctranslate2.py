"""Exports for CTranslate2 generate the same tokens as the model on torch."""

from pathlib import Path

import ctranslate2
import pytest
import sentencepiece

import dragoman
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.ctranslate2_translator import CTranslate2Translator
from dragoman.exporting.exporter import export
from dragoman.model.model_folder import WEIGHTS_FILE
from dragoman.recipe import recipe_names

from ..models import LINES, best_tokens, save_random_model, small_architecture


@pytest.mark.parametrize("recipe", recipe_names())
def test_ctranslate2_generates_the_same_tokens(recipe: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture(recipe), tokenizer)
    ours = dragoman.load(model, "cpu")
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    assert isinstance(theirs, CTranslate2Translator)
    assert best_tokens(theirs) == best_tokens(ours)
    assert len({tuple(tokens) for tokens in best_tokens(ours)}) > 10, "the test data is too simple"


@pytest.mark.parametrize(
    "changes",
    [
        {"bias": False},
        {"norm": "rmsnorm"},
        {"activation": "swiglu"},
        {"activation": "swish"},
        {"norm_position": "after"},
        {"positions": "marian", "first_position": 0},
        {"first_position": 2},
        {"scale_embedding": False},
        {"output_bias": True},
    ],
)
def test_ctranslate2_generates_the_same_tokens_for_single_settings(
    changes: dict[str, object], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny").replaced(**changes), tokenizer)
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    assert best_tokens(theirs) == best_tokens(dragoman.load(model, "cpu"))


def test_the_ctranslate2_library_can_load_the_folder_by_itself(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer)
    folder = export(model, tmp_path / "exported", "ctranslate2", "float32")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    plain = ctranslate2.Translator(str(folder), "cpu")
    results = plain.translate_batch(pieces.encode(LINES, out_type=str), beam_size=1, max_decoding_length=12)
    ours = best_tokens(dragoman.load(model, "cpu"))
    assert [result.hypotheses[0] for result in results] == [
        [tokenizer.pieces[token] for token in tokens[:12]] for tokens in ours
    ]


@pytest.mark.parametrize("quantization", ["int8", "int8_float32", "int16", "float16", "bfloat16"])
def test_every_quantization_translates_and_is_smaller(quantization: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("transformer-base"), tokenizer)
    folder = export(model, tmp_path / "exported", "ctranslate2", quantization)
    assert (folder / "model.bin").stat().st_size < 0.6 * (model / WEIGHTS_FILE).stat().st_size
    assert len(dragoman.load(folder, "cpu").translate(LINES)) == len(LINES)
