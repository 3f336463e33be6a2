"""Argos packages: the layout that Argos Translate expects, and the text that it makes of them."""

import json
from pathlib import Path
from zipfile import ZipFile

import ctranslate2
import pytest
import sentencepiece

import dragoman
from dragoman.corpus.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.exporting.exporter import export

from ..models import LINES, briefly_trained_model, save_model


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    return save_model(folder, briefly_trained_model(tokenizer), tokenizer, "en-de")


def install(package: Path, packages: Path) -> Path:
    """Unpack a package as Argos Translate does. Returns its folder."""
    with ZipFile(package) as archive:
        archive.extractall(packages)
    (folder,) = packages.iterdir()
    return folder


def test_a_package_is_one_folder_with_metadata_model_and_tokenizer(model: Path, tmp_path: Path) -> None:
    folder = install(export(model, tmp_path / "en_de.argosmodel", "argos"), tmp_path / "packages")
    assert folder.name == "translate-en_de-1_0"
    assert {file.name for file in folder.iterdir()} == {"metadata.json", "model", "sentencepiece.model", "README.md"}
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["type"] == "translate"
    assert [metadata[key] for key in ("from_code", "from_name", "to_code", "to_name")] == [
        "en", "English", "de", "German",
    ]  # fmt: skip
    assert "install_from_path" in (folder / "README.md").read_text()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == [], "a draft is left"


def test_the_text_is_that_of_dragoman_translate(model: Path, tmp_path: Path) -> None:
    """With the calls of argostranslate.translate.apply_packaged_translation and its tokenizer."""
    folder = install(export(model, tmp_path / "en_de.argosmodel", "argos"), tmp_path / "packages")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"), compute_type="auto")
    results = translator.translate_batch(
        [pieces.encode(line, out_type=str) for line in LINES],
        target_prefix=None,
        replace_unknowns=True,
        max_batch_size=32,
        batch_type="tokens",
        beam_size=1,
        num_hypotheses=1,
        length_penalty=0.2,
        return_scores=True,
    )
    exported = dragoman.load(export(model, tmp_path / "exported", "ctranslate2"), "cpu", beam=1)
    # A translation that does not end is cut off at 256 tokens by Argos, and by the length of its source here.
    ended = {
        line: pieces.decode_pieces(result.hypotheses[0]).replace("▁", " ").removeprefix(" ")
        for line, result in zip(LINES, results, strict=True)
        if len(result.hypotheses[0]) < len(pieces.encode(line))
    }
    assert len(ended) > 5
    assert exported.translate(ended) == list(ended.values())


def test_a_package_is_replaced_only_when_asked(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "en_de.argosmodel"
    export(model, out, "argos", "float32")
    with pytest.raises(DragomanError, match="--overwrite"):
        export(model, out, "argos")
    before = out.stat().st_size
    export(model, out, "argos", overwrite=True)
    assert out.stat().st_size < before
    with pytest.raises(DragomanError, match=r"end in \.argosmodel"):
        export(model, tmp_path / "en_de", "argos")
    (tmp_path / "folder.argosmodel").mkdir()
    with pytest.raises(DragomanError, match="is a folder"):
        export(model, tmp_path / "folder.argosmodel", "argos", overwrite=True)
