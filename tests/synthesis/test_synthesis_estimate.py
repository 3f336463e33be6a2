"""Estimates of a synthesis before it starts."""

from pathlib import Path

import pytest

from dragoman.errors import DragomanError
from dragoman.synthesis import synthesis_estimate
from dragoman.synthesis.synthesis_estimate import SynthesisEstimate, sample_lines

from ..command_line import run_command


def test_the_sample_is_of_the_whole_text_and_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("".join(f"{number}\n" for number in range(5000)))
    lines, sample = sample_lines([tmp_path / "text"], 100)
    assert (lines, len(sample), len(set(sample))) == (5000, 100, 100)
    assert 2000 < sum(map(int, sample)) / 100 < 3000
    assert sample_lines([tmp_path / "text"], 100)[1] == sample


def test_time_and_cost_follow_from_the_speed_of_all_machines() -> None:
    estimate = SynthesisEstimate(36000, {"a": 3.0, "b": 7.0}, price_per_hour=2.5)
    assert (estimate.seconds, estimate.cost) == (3600, 2.5)


def test_doctor_estimates_a_synthesis_and_writes_nothing(
    models: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis_estimate, "MEASURED_S", 0.0)
    done = run_command("doctor", str(models / "int8"), str(text), "money.price_per_hour=[2]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "90 lines take about" in done.stdout
    assert "USD" in done.stdout
    assert list(tmp_path.iterdir()) == [text]


def test_a_text_without_lines_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DragomanError, match="has no lines"):
        sample_lines([tmp_path / "empty"], 10)
