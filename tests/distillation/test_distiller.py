"""A distillation from a teacher to the report, whatever interrupts it."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from benchmarks.foreign_models import make_marian, make_nllb

import dragoman
from dragoman.corpus.dataset import DataSet
from dragoman.distillation.distillation_folder import DistillationFolder
from dragoman.distillation.distillation_inputs import DistillationInputs
from dragoman.distillation.distillation_parts import make_parts
from dragoman.distillation.distiller import Distillation, PartStart
from dragoman.distillation.quality_ledger import price_of_teaching
from dragoman.files import read_json, write_json
from dragoman.recipe import resolve
from dragoman.synthesis.synthesis_folder import SynthesisFolder
from dragoman.telemetry.score_gains import Gain
from dragoman.training.fingerprint import Fingerprint

from ..command_line import run_command
from ..models import PAIRS, save_random_model, small_architecture, train_tokenizer
from ..shared_folder import shared_folder
from .teachers import STUDENT, make_teacher


def make_distillation(folder: Path) -> None:
    make_teacher(folder)
    distill(folder, folder / "student", compare=True, text=[folder / "more.en"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory, "distillation", make_distillation)


def distill(made: Path, out: Path, **options: object) -> tuple[Distillation, list[PartStart]]:
    starts: list[PartStart] = []
    options = {"settings": STUDENT, "recipe": "student", "workers": 1, "progress": dragoman.no_progress, **options}
    return dragoman.distill(made / "teacher", made / "data", out, on_part=starts.append, **options), starts


def states(starts: list[PartStart]) -> dict[str, str]:
    return {start.name: start.state for start in starts}


def test_all_parts_lie_in_their_own_folders(made):
    out = made / "student"
    for student in (out, out / "baseline"):
        assert DataSet(student / "data").manifest.splits["train"].pairs > 5
        assert dragoman.translate(student / "export", ["The teacher reads a book."])


def test_the_student_learns_from_the_teacher_and_is_tested_on_real_text(made):
    real, student = DataSet(made / "data"), DataSet(made / "student" / "data")
    for split in ("valid", "test"):
        assert student.text(split) == real.text(split)
    synthetic = (made / "student" / "synthetic" / "corpus.de").read_text().splitlines()
    text = (made / "student" / "synthetic" / "corpus.en").read_text().splitlines()
    assert dragoman.load(made / "student" / "synthetic" / "model").translate(text[:5]) == synthetic[:5]


def test_the_losses_of_the_ledger_add_up_to_the_whole(made):
    content = read_json(made / "student" / "distillation.json")
    rows = {row["cause"]: row for row in content["ledger"]}
    parts = ["synthetic text", "student's size and training", "beam", "int8"]
    assert sum(rows[part]["bleu"] for part in parts) == pytest.approx(rows["all together"]["bleu"])
    systems = {system["name"]: system for system in content["systems"]}
    assert rows["all together"]["bleu"] == pytest.approx(systems["student"]["bleu"] - systems["teacher"]["bleu"])
    bound = content["upper_bound"]
    assert bound["bleu"] == pytest.approx(systems["teacher"]["bleu"])
    assert bound["low"] <= bound["bleu"] <= bound["high"]
    assert "the teacher is not in the folder of its run" in bound["win_back"]
    assert rows["what the teacher brought"]["before"] == "student without a teacher"
    assert systems["teacher"]["bleu"] > 0
    assert all(row["low"] <= row["bleu"] <= row["high"] and row["win_back"] for row in rows.values())
    assert systems["student"]["size_bytes"] < systems["teacher"]["size_bytes"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the price is by the clock")
def test_the_price_of_the_synthetic_text_leaves_out_other_work_on_the_machine(made, tmp_path):
    """The clock of the translation of the test set is not asked, where both are measured on one core."""
    out = tmp_path / "student"
    shutil.copytree(made / "student", out)
    (out / "distillation.json").unlink()
    [kept] = (out / "measurements").glob("teacher-*.json")
    write_json(kept, {**read_json(kept), "seconds": 1e9})
    again, _ = distill(made, out, compare=True, text=[made / "more.en"])
    [price] = [row["win_back"] for row in again.content["ledger"] if row["cause"] == "synthetic text"]
    assert 0 < float(price.split()[-4]) < 1e6


def test_a_complete_distillation_is_not_made_again(made):
    before = {path: path.stat().st_mtime_ns for path in (made / "student").rglob("*") if path.is_file()}
    again, starts = distill(made, made / "student", compare=True, text=[made / "more.en"])
    assert set(states(starts).values()) == {"complete"}
    assert again.content == read_json(made / "student" / "distillation.json")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_other_inputs_are_refused_by_name(made):
    with pytest.raises(dragoman.DragomanError, match=r"training.steps was 12, now 13.*choose another --out"):
        distill(made, made / "student", text=[made / "more.en"], settings=[*STUDENT, "training.steps=13"])


def test_every_setting_that_the_data_set_or_the_run_depends_on_is_recorded(made):
    student = DataSet(made / "student" / "data")
    prepared = {f"{section}.{name}" for section, part in student.manifest.settings.items() for name in part}
    trained = Fingerprint.of(resolve("student", STUDENT).settings, student).settings
    missing = prepared.union(trained).difference(read_json(made / "student" / "job.json"))
    assert {key.partition(".")[0] for key in missing} == {"telemetry"}


def test_own_folders_take_the_place_of_parts(made, tmp_path):
    out = tmp_path / "student"
    (out / "synthetic").mkdir(parents=True)
    for language in ("en", "de"):
        (out / "synthetic" / f"corpus.{language}").write_bytes((made / f"all.{language}").read_bytes())
    found, starts = distill(made, out)
    assert states(starts) == {
        "synthetic": "own", "data": "to do", "run": "to do", "export": "to do", "comparison": "to do"
    }  # fmt: skip
    assert found.content["ledger"][0]["win_back"] == "not known: the text was written elsewhere"


def test_more_text_is_translated_too(made):
    more = set((made / "more.en").read_text().splitlines())
    assert more & set((made / "student" / "synthetic" / "corpus.en").read_text().splitlines())


def test_the_translations_of_the_teacher_are_scored_by_both_directions(made, tmp_path):
    out, backward = tmp_path / "student", tmp_path / "backward"
    save_random_model(backward, small_architecture("tiny"), train_tokenizer(tmp_path), direction="de-en")
    _, starts = distill(made, out, score_back_with=backward)
    assert f"--score-back-with {backward}" in {start.name: start.command for start in starts}["synthetic"]
    synthetic = SynthesisFolder(out / "synthetic")
    assert synthetic.read().backward == str(backward)
    assert synthetic.read().corpus["min_score"] is not None
    candidates = [each for _, found in synthetic.shards.read(0)[1] for each in found]
    assert candidates
    assert all(each.agreement is not None for each in candidates)
    assert (out / "export" / "model.bin").exists()
    with pytest.raises(dragoman.DragomanError, match=r"score_back_with was \w+, now None\): choose another --out"):
        distill(made, out)
    other = tmp_path / "other"
    save_random_model(other, small_architecture("tiny"), train_tokenizer(tmp_path), direction="de-en", end_bias=1.0)
    with pytest.raises(dragoman.DragomanError, match=r"score_back_with was \w+, now \w+\): choose another --out"):
        distill(made, out, score_back_with=other)


def test_a_distillation_of_an_earlier_version_resumes(made, tmp_path):
    """It recorded no backward model."""
    job = read_json(made / "student" / "job.json")
    assert job.pop("score_back_with") is None
    folder = DistillationFolder(tmp_path / "student")
    folder.claim(job)
    folder.check_same({**job, "score_back_with": None})


def test_a_comparison_can_be_asked_for_later(made, tmp_path):
    out = tmp_path / "student"
    shutil.copytree(made / "student", out)
    shutil.rmtree(out / "baseline")
    write_json(out / "parts.json", {k: v for k, v in read_json(out / "parts.json").items() if "baseline" not in k})
    content = read_json(out / "distillation.json")
    write_json(out / "distillation.json", {**content, "ledger": content["ledger"][:-1]})
    more = [made / "more.en"]
    assert distill(made, out, text=more)[0].content["ledger"] == content["ledger"][:-1]
    found, starts = distill(made, out, compare=True, text=more)
    made_now = {name for name, state in states(starts).items() if state != "complete"}
    assert made_now == {"baseline data", "baseline run", "baseline export", "comparison"}
    assert [row["cause"] for row in found.content["ledger"]] == [row["cause"] for row in content["ledger"]]


def test_other_text_of_the_same_size_is_refused(made, tmp_path):
    (tmp_path / "more.en").write_text("one\n")
    inputs = DistillationInputs(
        str(made / "teacher"), DataSet(made / "data"), (str(tmp_path / "more.en"),), "student", STUDENT, None, (), 1
    )
    folder = DistillationFolder(tmp_path / "student")
    folder.claim(inputs.job())
    folder.check_same(inputs.job())
    (tmp_path / "more.en").write_text("two\n")
    with pytest.raises(dragoman.DragomanError, match=r"text was .*, now .*choose another --out"):
        folder.check_same(inputs.job())


@pytest.mark.parametrize("other", ["data", "teacher", "synthetic"])
def test_a_folder_with_other_files_is_refused(made, tmp_path, other):
    origin = made / "student" / "synthetic" if other == "synthetic" else made / other
    out = tmp_path / "out"
    shutil.copytree(origin, out)
    before = sorted(out.rglob("*"))
    with pytest.raises(dragoman.DragomanError, match=r"has other files in it: choose another --out"):
        distill(made, out)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("part", ["data", "run"])
def test_own_folders_of_another_direction_are_refused(made, tmp_path, part):
    out = tmp_path / "out"
    shutil.copytree(made / "student" / part, out / part)
    for path in (out / "data" / "manifest.json", *out.glob("run/checkpoints/*/model.json")):
        if path.exists() and not path.parent.is_symlink():
            write_json(path, {**read_json(path), "languages": {"source": "de", "target": "en"}})
    with pytest.raises(dragoman.DragomanError, match=rf"{part} is de-en, and the data set is en-de"):
        distill(made, out)
    assert [path.name for path in out.iterdir()] == [part]


@pytest.mark.parametrize(("make", "direction"), [(make_marian, "de-en="), (make_nllb, ""), (make_nllb, "de-en=")])
def test_a_foreign_teacher_of_another_direction_is_refused(made, tmp_path, make, direction):
    folder = make(tmp_path / "foreign", PAIRS)
    wrong = DistillationInputs(f"{direction}{folder}", DataSet(made / "data"), (), "student", STUDENT, None, (), 1)
    with pytest.raises(dragoman.DragomanError, match="en-de"):
        wrong.check()
    DistillationInputs(f"en-de={folder}", DataSet(made / "data"), (), "student", STUDENT, None, (), 1).check()


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.2, 1.0, "this was gained"), (-1.0, -0.2, "without this teacher"), (-0.4, 0.4, "no significant difference")],
)
def test_a_teacher_is_only_said_to_help_if_it_does(low, high, said):
    assert said in price_of_teaching(Gain((low + high) / 2, low, high))


def test_a_backward_model_of_the_same_direction_is_refused(made, tmp_path):
    with pytest.raises(dragoman.DragomanError, match=r"--score-back-with .* give a model from de to en"):
        distill(made, tmp_path / "out", score_back_with=made / "teacher")
    with pytest.raises(dragoman.DragomanError, match="missing"):
        distill(made, tmp_path / "out", score_back_with=tmp_path / "missing")
    assert not any(tmp_path.iterdir())


def test_everything_that_would_fail_later_is_said_before_anything_is_made(made, tmp_path):
    with pytest.raises(dragoman.DragomanError) as caught:
        distill(made, tmp_path / "out", text=["missing.en"], settings=[*STUDENT, "model.qk_norm=true"])
    assert all(text in str(caught.value) for text in ("--text missing.en does not exist", "model.qk_norm"))
    assert not any(tmp_path.iterdir())


def test_a_distillation_that_is_killed_again_and_again_gives_the_same_student(made, tmp_path):
    out = tmp_path / "student"
    command = command_line(made, out)
    for marker in ("synthetic/shards", "run/checkpoints/last"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (out / marker).exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed, starts = distill(made, out, text=[made / "more.en"])
    straight = read_json(made / "student" / "distillation.json")
    assert states(starts)["synthetic"] == "complete"
    assert starts[-1].left.unknown == ["comparison"]
    for name in ("data/manifest.json", "synthetic/corpus.de", "export/model.bin"):
        assert (out / name).read_bytes() == (made / "student" / name).read_bytes(), name
    assert [row["bleu"] for row in resumed.content["ledger"]] == [row["bleu"] for row in straight["ledger"]][:5]


def command_line(made: Path, out: Path) -> list[str]:
    arguments = ["--data", made / "data", "--text", made / "more.en", "--out", out, "--workers", "1", *STUDENT]
    return [sys.executable, "-m", "dragoman", "distill", *map(str, [made / "teacher", *arguments])]


def test_the_printed_commands_make_the_same_folders(made, tmp_path):
    out = tmp_path / "by hand"
    shutil.copytree(made / "student" / "text", out / "text")
    _, starts = distill(made, made / "student", compare=True, text=[made / "more.en"])
    commands = {start.name: shlex.split(start.command) for start in starts}
    for part in ("synthetic", "data", "run", "export", "baseline data"):
        words = [word.replace(str(made / "student"), str(out)) for word in commands[part]]
        done = run_command(*words[1:])
        assert done.returncode == 0, done.stderr
    for data in ("data", "baseline/data"):
        assert DataSet(out / data).manifest.identity == DataSet(made / "student" / data).manifest.identity
    for name in ("synthetic/corpus.de", "export/model.bin"):
        assert (out / name).read_bytes() == (made / "student" / name).read_bytes(), name


def test_the_printed_commands_have_all_options_and_are_quoted_for_a_shell(made, tmp_path):
    settings = {"training.steps": 3, "cleaning.rules": "+language", "money.price_per_hour": [2.1]}
    inputs = DistillationInputs(
        str(made / "teacher"), DataSet(made / "data"), ("more text.en",), "student", settings, 2, ("a", "b"), 3, "de en"
    )
    folder = DistillationFolder(tmp_path / "a student")
    parts = make_parts(folder, inputs, dragoman.no_progress, compare=True)
    words = {part.name: shlex.split(part.command) for part in parts}
    options = {"--hosts", "a,b", "--score-back-with", "de en", "decoding.beam=2", str(folder.synthetic)}
    assert {"more text.en", *options} <= set(words["synthetic"])
    assert any(word.startswith("cleaning.rules=") for word in words["synthetic"]), "its rules drop translations, too"
    assert {"--workers", "3", str(folder.student.run)} <= set(words["run"])
    for part in ("data", "run", "baseline data", "baseline run"):
        overrides = [word for word in words[part] if "=" in word]
        assert resolve("student", overrides).settings == inputs.resolved.settings, part


def test_the_command_prints_the_tables(made):
    command = [*command_line(made, made / "student"), "--compare"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    for text in ("words/s on one core", "what the teacher brought", "synthetic text", "time", "dragoman report"):
        assert text in done.stdout
    assert "Part 1 of" in done.stderr
    assert "measuring" not in done.stderr, "all parts are complete"


def test_the_time_of_the_parts_that_follow_is_told_while_the_teacher_translates(made, tmp_path):
    notes = []

    class Notes:
        def __call__(self, task: str, done: int, total: int | None) -> None:
            """Not looked at."""

        def note(self, text: str) -> None:
            notes.append(text)
            raise KeyboardInterrupt  # One is enough.

    with pytest.raises(KeyboardInterrupt):
        distill(made, tmp_path / "student", progress=Notes())
    assert notes[0].endswith("The parts that follow: time left: measuring.")
