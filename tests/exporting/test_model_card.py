"""The model card reports the facts of the run, and no others."""

import shutil
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.ctranslate2_translator import CARD_FILE
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import export
from dragoman.exporting.model_card import CardOptions

from ..models import save_random_model, small_architecture


def test_the_card_reports_what_the_run_recorded(run: Path, data: DataSet, tmp_path: Path) -> None:
    card = (export(run, tmp_path / "out", "ctranslate2", None, CardOptions(data, 3600.0)) / CARD_FILE).read_text()
    manifest = data.manifest
    assert manifest.identity in card
    assert f"{manifest.splits['train'].pairs:,} pairs" in card
    assert "BLEU" in card
    assert "|version:" in card, "the signature of the score is missing"
    assert "average of 2 checkpoints" in card
    assert "12 |" in card
    assert "dollars" in card
    assert "| workers | 1 on 1 machine |" in card
    assert "| hardware | CPU; fp32 |" in card
    assert "int8" in card
    assert "demo" in card


def test_the_card_reports_missing_facts_as_not_known(
    run: Path, data: DataSet, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    card = (export(run, tmp_path / "out", "safetensors") / CARD_FILE).read_text()
    assert data.manifest.identity in card
    assert "licences are not known" in card
    assert "| cost | not known |" in card
    without_run = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer)
    card = (export(without_run, tmp_path / "without_run", "safetensors") / CARD_FILE).read_text()
    assert card.count("ot known") >= 4


def test_the_card_refuses_another_data_set(run: Path, data: DataSet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(data.path, other)
    manifest = (other / "manifest.json").read_text().replace(data.manifest.identity, "0" * 64)
    (other / "manifest.json").write_text(manifest)
    with pytest.raises(DragomanError, match="give its own data set as --data"):
        export(run, tmp_path / "out", "safetensors", None, CardOptions(DataSet(other)))
    assert not (tmp_path / "out").exists()
