"""Exports are written atomically, can be loaded again, and replace only other exports."""

import shutil
from pathlib import Path

import pytest

import dragoman
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import EXPORT_FORMATS, export
from dragoman.model.model_folder import WEIGHTS_FILE

from ..models import LINES, save_random_model, small_architecture


@pytest.mark.parametrize("export_format", [known for known in EXPORT_FORMATS if known != "argos"])
def test_every_exported_folder_can_be_loaded_again(export_format: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer, beam=3)
    quantization = "float32" if export_format == "ctranslate2" else None
    folder = export(model, tmp_path / "exported", export_format, quantization)
    loaded = dragoman.load(folder, "cpu", beam=1)
    assert loaded.languages == Languages("en", "de")
    assert loaded.translate(LINES) == dragoman.load(model, "cpu", beam=1).translate(LINES)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")], "a temporary folder is left"


@pytest.mark.parametrize(
    ("export_format", "changes", "reason"),
    [
        ("huggingface", {"positions": "rotary"}, r"model\.positions = rotary .* ctranslate2 or safetensors"),
        ("huggingface", {"norm": "rmsnorm", "bias": False}, r"model\.norm = rmsnorm .*; model\.bias = False"),
        ("ctranslate2", {"qk_norm": True}, r"model\.qk_norm = true: export to safetensors"),
    ],
)
def test_an_unsupported_architecture_is_refused_with_the_reason(
    export_format: str, changes: dict[str, object], reason: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny").replaced(**changes), tokenizer)
    with pytest.raises(DragomanError, match=reason):
        export(model, tmp_path / "exported", export_format)
    assert [file.name for file in tmp_path.iterdir()] == ["model"], "a temporary folder is left"


def test_an_export_replaces_only_another_export(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", small_architecture("tiny"), tokenizer)
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("other files")
    for overwrite in (False, True):
        with pytest.raises(DragomanError, match="choose another --out"):
            export(model, out, "safetensors", overwrite=overwrite)
    shutil.rmtree(out)
    export(model, out, "safetensors")
    with pytest.raises(DragomanError, match="--overwrite"):
        export(model, out, "ctranslate2")
    export(model, out, "ctranslate2", overwrite=True)
    assert not (out / WEIGHTS_FILE).exists()
    with pytest.raises(DragomanError, match="already an export"):
        export(out, tmp_path / "again", "ctranslate2")
    with pytest.raises(DragomanError, match="is for ctranslate2"):
        export(model, tmp_path / "again", "safetensors", "int8")
