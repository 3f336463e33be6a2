"""Texts and translations that are scored."""

import json
import os
import shutil
from pathlib import Path
from threading import Thread

import pytest

from dragoman.corpus.dataset import MANIFEST_FILE, DataSet
from dragoman.decoding.system_translations import EvaluationText, system_outputs
from dragoman.decoding.translator import Translator
from dragoman.errors import DragomanError
from dragoman.progress_callback import no_progress

from ..models import LINES, save_model


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_system_is_a_file_of_translations_or_a_model(translator: Translator, tmp_path: Path) -> None:
    model = save_model(
        tmp_path / "model", translator.model, translator.tokenizer, "en-de", beam=2, max_length_ratio=0.2
    )
    file = write_lines(tmp_path / "output", ["eins", "zwei", "drei"])
    text = EvaluationText(LINES[:3], ["a", "b", "c"])
    assert system_outputs([str(file), str(model)], text, no_progress) == [
        ["eins", "zwei", "drei"],
        translator.translate(LINES[:3]),
    ]
    with pytest.raises(DragomanError, match="give --src FILE or --data DATA"):
        system_outputs([str(model)], EvaluationText(None, ["a"]), no_progress)


def test_texts_of_different_lengths_are_refused(tmp_path: Path) -> None:
    two, three = (write_lines(tmp_path / str(count), ["line"] * count) for count in (2, 3))
    with pytest.raises(DragomanError, match="--src has 2 lines, --ref 3"):
        EvaluationText.from_files(two, three)
    with pytest.raises(DragomanError, match="has 2 lines, the references 3"):
        system_outputs([str(two)], EvaluationText.from_files(None, three), no_progress)


@pytest.mark.parametrize("place", ["--src", "--ref", "system"])
def test_text_in_another_encoding_is_refused_with_the_line(tmp_path: Path, place: str) -> None:
    files = {name: write_lines(tmp_path / name, ["eins", "zw\u00f6lf"]) for name in ("--src", "--ref", "system")}
    files[place].write_bytes("eins\nzw\u00f6lf\n".encode("latin-1"))
    with pytest.raises(DragomanError, match=rf"{files[place]}, line 2: is not UTF-8: convert it to UTF-8"):
        system_outputs([str(files["system"])], EvaluationText.from_files(files["--src"], files["--ref"]), no_progress)


def test_text_may_come_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=write_lines, args=(pipe, ["eins", "zw\u00f6lf"]))
    writer.start()
    assert EvaluationText.from_files(None, pipe).references == ["eins", "zw\u00f6lf"]
    writer.join()


def test_a_data_set_has_sources_and_references(data: DataSet) -> None:
    text = EvaluationText.from_dataset(data.path, "valid")
    assert text.sources is not None
    assert len(text.sources) == len(text.references) == 60
    with pytest.raises(DragomanError, match="--split train is not known: use test or valid"):
        EvaluationText.from_dataset(data.path, "train")


def test_a_data_set_without_a_test_set_leads_to_its_validation_set(data: DataSet, tmp_path: Path) -> None:
    shutil.copytree(data.path, tmp_path / "data")
    manifest = json.loads((data.path / MANIFEST_FILE).read_text())
    manifest["splits"].pop("test", None)
    (tmp_path / "data" / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(DragomanError, match="has no test set: score the validation set with `--split valid`"):
        EvaluationText.from_dataset(tmp_path / "data", "test")
    assert EvaluationText.from_dataset(tmp_path / "data", "valid").references
