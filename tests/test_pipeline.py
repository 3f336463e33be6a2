"""The Python API, from text to a report, as a script uses it."""

import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.corpus import demo
from dragoman.corpus.dataset import DataSet
from dragoman.errors import DragomanError
from dragoman.events import EvaluationDone
from dragoman.pipeline import TrainedRun
from dragoman.recipe import resolve

from .insight.synthetic_runs import synthetic_run, write_run
from .shared_folder import shared_folder
from .small import TINY

SETTINGS = dict(resolve(None, TINY).settings.model_dump(include={"model": True, "batch": True}))
STEPS = {"training.steps": 6, "evaluation.every": 3, "evaluation.sentences": 4, "training.precision": "fp32"}
TEXT = "The teacher reads a book."


def flat(settings: dict[str, dict[str, object]]) -> dict[str, object]:
    return {f"{section}.{name}": value for section, values in settings.items() for name, value in values.items()}


def make_run(folder: Path) -> None:
    pairs = demo.generate(400, seed=2, valid=1, test=1).train
    (folder / "all.en").write_text("".join(f"{english}\n" for english, _ in pairs))
    (folder / "all.de").write_text("".join(f"{german}\n" for _, german in pairs))
    prepared = dragoman.prepare(
        [folder / "all.en", folder / "all.de"],
        folder / "data",
        settings={"tokenizer.vocabulary_size": 400, "corpus.test_pairs": 10},
        workers=1,
        progress=dragoman.no_progress,
    )
    assert prepared.is_new
    trained = dragoman.train("tiny", prepared.path, folder / "run", settings={**flat(SETTINGS), **STEPS}, workers=1)
    assert trained.reason == "finished"
    assert trained.result is not None
    assert trained.result.step in (3, 6)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "pipeline", make_run)


def test_the_package_is_light_to_import():
    program = (
        "import sys, dragoman; print([m for m in ('torch', 'numpy', 'pydantic', 'rich', 'typer') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_its_functions_stay_functions_when_everything_is_imported():
    """A package of the same name, such as `dragoman.export`, would replace a function."""
    import dragoman.cli
    import dragoman.exporting.exporter

    assert all(callable(getattr(dragoman, name)) for name in dragoman.__all__)


def test_the_same_inputs_are_not_prepared_again(made):
    again = dragoman.prepare(
        [made / "all.en", made / "all.de"],
        made / "data",
        settings=["tokenizer.vocabulary_size=400", "corpus.test_pairs=10"],
        workers=1,
    )
    assert not again.is_new
    assert again.dataset.pairs("test")


def test_a_text_or_several_are_translated_as_the_loaded_model_does(made):
    model = dragoman.load(made / "run", beam=2)
    expected = model.translate([TEXT])
    assert dragoman.translate(model, TEXT) == expected[0]
    assert dragoman.translate(made / "run", [TEXT], beam=2) == expected


def test_a_document_is_translated_in_its_format(made, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(f"<p>{TEXT}</p>")
    assert dragoman.translate_files(made / "run", [page], tmp_path / "page.de.html") == [tmp_path / "page.de.html"]
    assert (tmp_path / "page.de.html").read_text().startswith("<p>")


def test_a_system_is_scored_and_two_are_compared(made, tmp_path):
    score = dragoman.score(made / "run", data=made / "data")
    assert 0 <= score.bleu.value <= 100
    comparison = dragoman.compare(made / "run", made / "run", data=made / "data", html=tmp_path / "page.html")
    assert comparison.bleu.gain == 0
    assert (tmp_path / "page.html").exists()


def test_a_model_is_exported_with_its_card(made, tmp_path):
    out = dragoman.export(made / "run", tmp_path / "model", data=made / "data")
    assert dragoman.translate(out, TEXT)
    with pytest.raises(dragoman.DragomanError, match="onnx is not known"):
        dragoman.export(made / "run", tmp_path / "other", "onnx")


def test_a_report_answers_as_markdown_and_as_a_page(made, tmp_path):
    report = dragoman.report(made / "run")
    assert "Eleven answers" in report.markdown
    assert report._repr_markdown_() == report.markdown
    report.write_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").exists()
    assert dragoman.report(made / "run", made / "run").content["comparison"] is not None


def test_progress_goes_to_the_callback(made):
    seen = []
    dragoman.score(made / "run", data=made / "data", progress=lambda task, done, total: seen.append((done, total)))
    assert seen[-1] == (10, 10)


def test_wrong_settings_are_reported_together(made):
    with pytest.raises(dragoman.DragomanError) as raised:
        dragoman.train("tiny", made / "data", made / "other", settings={"training.stepz": 1, "batch.tokens": 1})
    assert "did you mean training.steps?" in str(raised.value)
    assert "batch.tokens = 1 is not allowed" in str(raised.value)


def test_a_learning_curve_has_the_lowest_loss_of_each_run(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(recipe: str, data: str, out: Path, **options: object) -> TrainedRun:
        write_run(out, synthetic_run(200, bleu=lambda step: 30 - step / 100))
        return TrainedRun(out, "finished")

    monkeypatch.setattr("dragoman.pipeline.train", train)
    (tmp_path / "curve").mkdir()
    curve = dragoman.learning_curve("tiny", data.path, tmp_path / "curve")
    lowest = min(event.nll for event in synthetic_run(200) if isinstance(event, EvaluationDone))
    assert [part.nll for part in curve.parts] == [lowest] * 3


def test_parts_of_a_learning_curve_with_the_same_number_of_pairs_are_refused(data: DataSet, tmp_path: Path) -> None:
    with pytest.raises(DragomanError, match=r"the same number of pairs: 0.0001 \(1\), 0.0002 \(1\), 1 "):
        dragoman.learning_curve("tiny", data.path, tmp_path / "curve", parts=(0.0001, 0.0002, 1))
    assert not (tmp_path / "curve").exists()
