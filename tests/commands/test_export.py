"""`dragoman export` as users run it."""

import json
from pathlib import Path

from ..command_line import run_command
from ..exporting.conftest import run  # noqa: F401
from ..models import LINES


def test_export_writes_a_folder_that_translate_accepts(run: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    done = run_command("export", str(run), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "is ready" in done.stdout
    shown = run_command("inspect", str(out), "--json")
    assert json.loads(shown.stdout)["files"]["model.bin"]["bytes"] == (out / "model.bin").stat().st_size
    table = run_command("inspect", str(out)).stdout
    for fact in ("en to de", "ctranslate2, int8", "parameters", "layers", "weights for CTranslate2", "README.md"):
        assert fact in table
    lines = "".join(f"{line}\n" for line in LINES[:3])
    done = run_command("translate", str(out), stdin=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 3
    for wrong in (["--to", "onnx"], ["--quantization", "int3"]):
        done = run_command("export", str(run), "--out", str(out), *wrong)
        assert done.returncode == 2
        assert "is not known: use" in done.stderr


def test_a_licence_is_an_identifier(run: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run_command("export", str(run), "--out", str(tmp_path / "out"), "--license", "do what\nyou like")
    assert done.returncode == 2
    assert "is not an identifier: use one such as cc-by-4.0" in done.stderr
