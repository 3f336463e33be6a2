"""`dragoman train` on the command line: mixed data, other sets to evaluate on, and folders of transformers."""

import json
from pathlib import Path

import pytest
from benchmarks.foreign_models import make_marian

from dragoman.corpus.dataset import DataSet
from dragoman.errors import EXIT_USER_ERROR

from ..command_line import run_command
from ..models import PAIRS
from ..small import TINY

SETTINGS = [setting for setting in TINY if not setting.startswith(("model.", "schedule."))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, side in (("train.en", 0), ("train.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    make_marian(tmp_path / "opus", PAIRS)
    return tmp_path


def test_a_folder_of_transformers_is_prepared_for_trained_and_translated_with(folder: Path) -> None:
    prepared = run_command(
        "prepare", "train.en", "train.de", "--tokenizer", "opus", "--out", "data", "--workers", "1",
        "corpus.valid_pairs=10", cwd=folder,
    )  # fmt: skip
    assert prepared.returncode == 0, prepared.stderr
    options = ["--from", "opus", "--data", "data", "--out", "run", "--workers", "1"]
    trained = run_command("train", "tiny", *options, *SETTINGS, "training.steps=2", cwd=folder)
    assert trained.returncode == 0, trained.stderr
    start = json.loads((folder / "run" / "config.json").read_text())["start"]
    assert start["model"] == "opus"
    for model in ("opus", "run", "en-de=opus"):
        translated = run_command("translate", model, stdin="The teacher reads.\n", cwd=folder)
        assert translated.returncode == 0, translated.stderr
        assert translated.stdout.count("\n") == 1


def test_what_does_not_fit_is_one_message_and_nothing_is_written(folder: Path, data: DataSet) -> None:
    (folder / "opus" / "vocab.json").unlink()
    options = ["--from", "opus", "--data", str(data.path), "--out", "run"]
    failed = run_command("train", "tiny", *options, "schedule.warmup_steps=5", cwd=folder)
    assert failed.returncode == 2
    assert failed.stderr.count("error:") == 1
    assert "vocab.json is missing" in failed.stderr
    assert "schedule.warmup_steps has no effect with --from" in failed.stderr
    assert not (folder / "run").exists()
    failed = run_command("prepare", "train.en", "train.de", "--tokenizer", "opus", "--out", "data", cwd=folder)
    assert failed.returncode == 2
    assert "vocab.json is missing" in failed.stderr
    assert not list(folder.glob("data*"))


def test_data_sets_that_cannot_be_mixed_are_refused_before_anything_is_written(data, tmp_path):
    done = run_command("train", "tiny", "--data", str(data.path), "--data", "none@0.3", "--out", str(tmp_path / "run"))
    assert done.returncode == EXIT_USER_ERROR
    assert done.stderr.startswith("error: The data cannot be mixed, and nothing was written:\n  none is not a prepared")
    assert not (tmp_path / "run").exists()


def test_evaluation_sets_that_cannot_be_read_are_refused_before_anything_is_written(data, tmp_path):
    wrong = ("--also-evaluate", "news=none.en,none.de", "--also-evaluate", "old")
    done = run_command("train", "tiny", "--data", str(data.path), *wrong, "--out", str(tmp_path / "run"))
    assert done.returncode == EXIT_USER_ERROR
    assert "--also-evaluate news: none.en: cannot be read" in done.stderr
    assert "--also-evaluate old is not understood" in done.stderr
    assert not (tmp_path / "run").exists()
