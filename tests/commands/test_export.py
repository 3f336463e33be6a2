"""`dragoman export` as users run it."""

import json
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.launch import local_launcher
from dragoman.training.worker import TrainingJob

from ..command_line import run_command
from ..models import LINES
from ..small import tiny


@pytest.fixture(scope="module")
def run(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert local_launcher.train(TrainingJob(tiny("checkpoint.average=2"), data.path, folder, 1), 1) == "finished"
    return folder


def test_export_writes_a_folder_that_translate_accepts(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_command("export", str(run), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "is ready" in done.stdout
    shown = run_command("inspect", str(out), "--json")
    assert json.loads(shown.stdout)["files"]["model.bin"] == (out / "model.bin").stat().st_size
    lines = "".join(f"{line}\n" for line in LINES[:3])
    done = run_command("translate", str(out), stdin=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
    for wrong in (["--to", "onnx"], ["--quantization", "int3"]):
        done = run_command("export", str(run), "--out", str(out), *wrong)
        assert done.returncode == 2
        assert "is not known: use" in done.stderr
