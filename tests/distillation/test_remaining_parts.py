"""The time left in a distillation, from what was measured."""

from dataclasses import asdict
from pathlib import Path

import pytest

from dragoman.distillation.distillation_folder import PARTS_FILE, DistillationFolder, Part, PartRecord
from dragoman.distillation.remaining_parts import RemainingParts, estimate_parts
from dragoman.files import write_json
from dragoman.insight.run_history import read_history
from dragoman.insight.time_and_cost import estimate_remaining_time

from ..insight.synthetic_runs import synthetic_run, write_run
from ..insight.test_synthesis_summary import session, write


def estimate(folder: DistillationFolder, **records: PartRecord) -> RemainingParts:
    """Parts in order; those without a complete record are to be made."""
    recorded = {name.replace("_", " "): record for name, record in records.items()}
    write_json(folder.path / PARTS_FILE, {name: asdict(record) for name, record in recorded.items()})
    paths = {
        "synthetic": folder.synthetic,
        "data": folder.student.data,
        "run": folder.student.run,
        "baseline data": folder.baseline.data,
        "baseline run": folder.baseline.run,
    }
    parts = [Part(name, path, "", lambda: None, ()) for name, path in paths.items()]
    return estimate_parts(folder, parts, {part.name: folder.state(part) in ("to do", "begun") for part in parts})


def test_nothing_is_known_at_the_start(tmp_path: Path) -> None:
    left = estimate(DistillationFolder(tmp_path))
    assert left.unknown == ["synthetic", "data", "run", "baseline data", "baseline run"]
    assert (str(left), left.total_s) == ("time left: measuring", None)


def test_a_part_that_was_interrupted_is_known_by_its_log(tmp_path: Path) -> None:
    folder = DistillationFolder(tmp_path)
    write(folder.synthetic, *session())
    left = estimate(folder, synthetic=PartRecord(90.0))
    assert left.known_s == {"synthetic": pytest.approx(600 / 5)}
    assert str(left) == "time left: 2 min 00 s for synthetic; measuring data, run, baseline data and baseline run"


def test_a_part_that_was_interrupted_before_it_had_a_log_is_not_known(tmp_path: Path) -> None:
    folder = DistillationFolder(tmp_path)
    assert "run" in estimate(folder, synthetic=PartRecord(1.0), run=PartRecord(1.0)).unknown


def test_the_student_without_a_teacher_takes_as_long_as_the_one_with(tmp_path: Path) -> None:
    folder = DistillationFolder(tmp_path)
    for path in (folder.synthetic, folder.student.data):
        path.mkdir(parents=True)
        (path / "made").touch()
    write_run(folder.student.run, synthetic_run(200))
    left = estimate(folder, synthetic=PartRecord(30.0, True), data=PartRecord(20.0, True), run=PartRecord(5.0, True))
    elapsed_s = read_history(folder.student.run).elapsed_s
    assert left.known_s == {"baseline data": 20.0, "baseline run": elapsed_s}  # Of all sessions, also of killed ones.
    assert left.total_s == 20.0 + elapsed_s
    assert str(left).endswith(" left")


def test_a_begun_training_is_known_by_its_steps(tmp_path: Path) -> None:
    folder = DistillationFolder(tmp_path)
    write_run(folder.student.run, synthetic_run(100, total_steps=400, ended=None))
    remaining = estimate_remaining_time(read_history(folder.student.run))
    assert remaining is not None
    assert estimate(folder, run=PartRecord(5.0)).known_s == {"run": remaining.total_s}
