"""`dragoman export` as users run it."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

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


def test_a_package_for_argos_can_be_inspected(run: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "en_de.argosmodel"
    assert run_command("export", str(run), "--to", "argos", "--out", str(out)).returncode == 0
    content = json.loads(run_command("inspect", str(out), "--json").stdout)
    assert (content["format"], content["languages"]) == ("argos", {"source": "en", "target": "de"})
    with ZipFile(out) as archive:
        assert [file["bytes"] for file in content["files"].values()] == [each.file_size for each in archive.infolist()]
    table = run_command("inspect", str(out)).stdout
    for fact in ("en to de; argos", "model/model.bin", "weights for CTranslate2", "install_from_path"):
        assert fact in table


@pytest.mark.parametrize("content", [b"not a zip file", None, b"[]", b'{"from_code": "en"}'])
def test_a_damaged_package_is_named(content: bytes | None, tmp_path: Path) -> None:
    out = tmp_path / "en_de.argosmodel"
    out.write_bytes(content or b"")
    if content != b"not a zip file":
        with ZipFile(out, "w") as archive:
            archive.writestr("package/other.json" if content is None else "package/metadata.json", content or b"")
    done = run_command("inspect", str(out))
    assert done.returncode == 2
    assert f"{out} is not a package of Argos Translate" in done.stderr


def test_a_licence_is_an_identifier(run: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run_command("export", str(run), "--out", str(tmp_path / "out"), "--license", "do what\nyou like")
    assert done.returncode == 2
    assert "is not an identifier: use one such as cc-by-4.0" in done.stderr
