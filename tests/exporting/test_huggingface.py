"""Exports for Hugging Face generate the same tokens in transformers."""

import ast
import re
from pathlib import Path

import pytest

import dragoman
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.ctranslate2_translator import CARD_FILE
from dragoman.exporting.exporter import export
from dragoman.exporting.model_card import CardOptions

from ..models import LINES, best_tokens, save_random_model, small_architecture

ODD_LINES = ["", " ", "two  spaces", "日本語。", "🐪 a camel", "ﬁ ½ Ⅳ", " before", "after ", "naïve café", "x ▁ y"]


def test_transformers_loads_the_export_and_generates_the_same_tokens(any_tokenizer: Tokenizer, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = save_random_model(tmp_path / "model", small_architecture("transformer-base"), any_tokenizer)
    folder = str(export(model, tmp_path / "exported", "huggingface"))
    theirs, pieces = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ours = dragoman.load(model, "cpu")
    for line in [*LINES, *ODD_LINES]:
        expected = [*any_tokenizer.encode(line), any_tokenizer.eos_id]
        assert pieces(line).input_ids == expected
        assert pieces.decode(expected, skip_special_tokens=True) == any_tokenizer.decode(expected)
    batch = pieces(LINES, return_tensors="pt", padding=True)
    made = theirs.generate(**batch, num_beams=1, max_new_tokens=12)
    assert [row[1:13] for row in made.tolist()] == [
        [*tokens, any_tokenizer.eos_id, *[any_tokenizer.pad_id] * 12][:12] for tokens in best_tokens(ours)
    ]


def test_the_code_on_the_card_runs(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("transformer-base"), tokenizer)
    folder = export(model, tmp_path / "exported", "huggingface", None, CardOptions(license="cc-by-4.0"))
    card = (folder / CARD_FILE).read_text()
    assert "\nlicense: cc-by-4.0\n" in card
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    exec(code.replace("FOLDER", str(folder)).replace("**batch", "**batch, max_new_tokens=4"))
    assert len(ast.literal_eval(capsys.readouterr().out)) == 2
