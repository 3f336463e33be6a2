"""`dragoman translate` as users run it."""

import json
import lzma
from pathlib import Path

import pytest

import dragoman

from ..command_line import run_command
from ..models import LINES, save_random_model, small_architecture, train_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return save_random_model(
        folder / "model", small_architecture("tiny"), train_tokenizer(folder), max_length_ratio=0.5
    )


def test_sentences_in_quotation_marks_are_translated(model: Path) -> None:
    sentences = [LINES[0], "x = y: a sentence, not a setting", "word " * 100]
    done = run_command("translate", str(model), *sentences, "decoding.beam=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == dragoman.load(model, beam=2).translate(sentences)
    done = run_command("translate", str(model), LINES[0], "--json")
    assert json.loads(done.stdout)["source"] == LINES[0]


def test_a_file_with_spaces_in_its_name_is_still_a_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "two words").write_text("One.\nTwo.\n")
    done = run_command("translate", str(model), str(tmp_path / "two words"))
    assert done.stdout.count("\n") == 2


def test_a_file_may_be_compressed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("One.\nTwo.\n")
    (tmp_path / "text.xz").write_bytes(lzma.compress(b"One.\nTwo.\n"))
    plain, compressed = (run_command("translate", str(model), str(tmp_path / name)) for name in ("text", "text.xz"))
    assert compressed.returncode == 0, compressed.stderr
    assert compressed.stdout == plain.stdout


@pytest.mark.parametrize("words", [["Hi."], ["missing.txt"], ["A sentence.", "Hi."], ["Hi.", "A sentence."]])
def test_what_is_neither_a_file_nor_a_sentence_is_named_with_two_remedies(model: Path, words: list[str]) -> None:
    done = run_command("translate", str(model), *words)
    assert done.returncode == 2
    [named] = [word for word in words if " " not in word]
    assert f"There is no file {named}: check the path, or pipe text in" in " ".join(done.stderr.split())


def test_a_file_and_a_sentence_are_translated_separately(model: Path, tmp_path: Path) -> None:
    (tmp_path / "news").write_text("One.\n")
    done = run_command("translate", str(model), "A sentence.", "news", cwd=tmp_path)
    assert done.returncode == 2
    assert "news is a file, but 'A sentence.' is a sentence" in " ".join(done.stderr.split())
