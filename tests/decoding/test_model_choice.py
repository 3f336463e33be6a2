import shutil
import warnings
from pathlib import Path

import pytest
from safetensors.torch import load_file

import dragoman
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.model_choice import CHECKPOINT_PREFERENCE, find_model
from dragoman.errors import DragomanError, DragomanWarning
from dragoman.serving.model_loading import load_service

from ..command_line import run_command
from ..shared_folder import shared_folder
from ..small import tiny
from ..training.recorded_run import FakeScorer, RecordedRun

LINES = ["The cat sleeps.", "A dog sees the house.", "The teacher reads a book."]
STALE = "averages checkpoints up to step 4, but the run has gone on to step 8: using best-bleu instead."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: DataSet) -> Path:
    """A run that was averaged at step 4 and then went on to step 8, its best BLEU at step 6."""

    def train(folder: Path) -> None:
        settings = ["training.steps=4", "evaluation.every=2", "checkpoint.every=2", "schedule.learning_rate=0.01"]
        RecordedRun(tiny(*settings, "checkpoint.average=2"), data, folder).train()
        settings[0] = "training.steps=8"
        RecordedRun(tiny(*settings), data, folder, FakeScorer([10, 9])).train()

    return shared_folder(tmp_path_factory, "went-on", train)


@pytest.fixture
def checkpoints(run: Path) -> Path:
    return run / "checkpoints"


def test_an_average_that_the_run_has_left_behind_is_not_used(run, checkpoints):
    assert (checkpoints / "best-bleu").resolve().name == "step-00000006"
    for path in (run, checkpoints):
        with pytest.warns(DragomanWarning, match=STALE):
            assert find_model(path) == checkpoints / "best-bleu"


def test_an_average_of_the_newest_checkpoints_is_preferred(run, tmp_path):
    shutil.copytree(run, tmp_path / "run", symlinks=True)
    last = tmp_path / "run" / "checkpoints" / "last"
    last.unlink()
    last.symlink_to("step-00000004")
    with warnings.catch_warnings(action="error"):
        assert find_model(tmp_path / "run").name == "averaged"


def test_a_model_that_is_named_itself_is_used_whatever_its_age(checkpoints):
    with warnings.catch_warnings(action="error"):
        assert find_model(checkpoints / "averaged") == checkpoints / "averaged"


def test_models_are_preferred_in_order_and_none_is_an_error(run, tmp_path):
    with pytest.raises(DragomanError, match="check the path"):
        find_model(tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    with pytest.raises(DragomanError, match="There is no model in"):
        find_model(tmp_path / "run")
    for better in reversed(CHECKPOINT_PREFERENCE):
        (folder / better).mkdir()
        shutil.copy(run / "checkpoints" / "last" / "model.json", folder / better)
        assert find_model(tmp_path / "run") == find_model(folder) == folder / better


def test_load_warns_and_uses_the_best_checkpoint(run, checkpoints):
    with pytest.warns(DragomanWarning, match=STALE):
        found = dragoman.load(run, "cpu").translate_scored(LINES)
    assert found == dragoman.load(checkpoints / "best-bleu", "cpu").translate_scored(LINES)
    assert found != dragoman.load(checkpoints / "averaged", "cpu").translate_scored(LINES)


def test_translate_says_so_and_uses_the_best_checkpoint(run, checkpoints):
    text = "".join(f"{line}\n" for line in LINES)
    found = run_command("translate", str(run), "--json", stdin=text)
    assert f"note: {checkpoints / 'averaged'} {STALE}" in found.stderr
    assert found.stdout == run_command("translate", str(checkpoints / "best-bleu"), "--json", stdin=text).stdout


def test_score_says_so_and_uses_the_best_checkpoint(run, checkpoints, data):
    arguments = ("--data", str(data.path), "--split", "valid", "--json")
    found = run_command("score", str(run), *arguments)
    assert STALE in found.stderr
    assert found.stdout == run_command("score", str(checkpoints / "best-bleu"), *arguments).stdout


@pytest.mark.parametrize(
    ("export_format", "file"), [("safetensors", "weights.safetensors"), ("huggingface", "model.safetensors")]
)
def test_export_says_so_and_uses_the_best_checkpoint(run, checkpoints, tmp_path, export_format, file):
    done = run_command("export", str(run), "--to", export_format, "--out", str(tmp_path / "a"))
    assert STALE in done.stderr
    run_command("export", str(checkpoints / "best-bleu"), "--to", export_format, "--out", str(tmp_path / "b"))
    first, second = (load_file(tmp_path / name / file) for name in ("a", "b"))
    assert all(first[name].equal(second[name]) for name in first)


def test_serve_says_so_and_uses_the_best_checkpoint(run, checkpoints, monkeypatch):
    exported: list[Path] = []
    monkeypatch.setattr("dragoman.serving.model_loading._export", lambda model, out: exported.append(model) or out)
    monkeypatch.setattr("dragoman.serving.model_loading.TranslationService", lambda *_, **__: None)
    with pytest.warns(DragomanWarning, match=STALE):
        load_service([run], threads=1, on_batch=lambda *_: None, on_export=lambda _: None)
    assert exported == [checkpoints / "best-bleu"]
