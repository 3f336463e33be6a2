"""Translation with CTranslate2 exports: ranking, log-probabilities, lines of any length, no torch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dragoman
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.decoding.length_rules import length_penalty
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import export

from ..models import LINES, save_random_model, small_architecture, train_tokenizer

ODD_LINES = ["", " ", "two  spaces", "日本語。", "🐪 a camel", "ﬁ ½ Ⅳ", " before", "after ", "naïve café", "x ▁ y"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return train_tokenizer(tmp_path_factory.mktemp("tokenizer"), "bpe")


def test_results_are_ranked_by_our_length_penalty(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer, end_bias=2.0, beam=4)
    folder = export(model, tmp_path / "exported", "ctranslate2", "float32")
    penalised, plain = (dragoman.load(folder, "cpu", length_penalty=alpha) for alpha in (0.6, 0.0))
    source = (*tokenizer.encode(LINES[0]), tokenizer.eos_id)
    best = penalised.search([source], 4)[source]
    assert [found.score for found in best] == sorted((found.score for found in best), reverse=True)
    unpenalised = {tuple(found.tokens): found.score for found in plain.search([source], 4)[source]}
    shared = [found for found in best if tuple(found.tokens) in unpenalised]
    assert len({len(found.tokens) for found in shared}) > 1, "the test data is too simple"
    for found in shared:
        penalty = length_penalty(len(found.tokens) + 1, 0.6)
        assert found.score == pytest.approx(unpenalised[tuple(found.tokens)] / penalty, rel=1e-4)


def test_token_log_probabilities_add_up_to_the_score(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(
        tmp_path / "model", small_architecture("tiny"), tokenizer, end_bias=2.0, length_penalty=0.0, beam=2
    )
    theirs = dragoman.load(export(model, tmp_path / "exported", "ctranslate2", "float32"), "cpu")
    source = (*tokenizer.encode(LINES[3]), tokenizer.eos_id)
    best = theirs.search([source], 1)[source][0]
    [log_probabilities] = theirs.log_probabilities([(source, best.tokens)])
    assert len(log_probabilities) == len(best.tokens) + 1, "the end token has one, too"
    assert sum(log_probabilities) == pytest.approx(best.score, rel=1e-4)


def test_an_export_translates_lines_of_any_length_one_for_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer, end_bias=2.0, beam=2)
    translator = dragoman.load(export(model, tmp_path / "exported", "ctranslate2"), "cpu")
    lines = [*ODD_LINES, " ".join(LINES * 3), LINES[0]]
    found = translator.translate_scored(lines, n_best=2)
    assert len(found) == len(lines)
    assert found[0].text == found[1].text == ""
    assert found[-1].alternatives


def test_a_damaged_export_is_reported(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer)
    folder = export(model, tmp_path / "out", "ctranslate2")
    (folder / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(DragomanError, match="export the model again"):
        dragoman.load(folder)


def test_loading_an_export_does_not_change_the_threads_of_torch(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = export(
        save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer), tmp_path / "out", "ctranslate2"
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        dragoman.load(folder, "cpu").translate(LINES[:2])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_export_runs_without_torch(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = export(
        save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer), tmp_path / "out", "ctranslate2"
    )
    code = (
        "import sys, dragoman;"
        f"dragoman.load({str(folder)!r}, 'cpu').translate(['Hello.']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
