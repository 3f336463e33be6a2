import shutil
import sys

import pytest
import torch

from dragoman.corpus.data_mixture import open_data
from dragoman.launch.host_probe import probe
from dragoman.launch.preflight import settings_digest
from dragoman.recipe import resolve


def test_a_host_reports_its_software_data_and_disk(data, tmp_path):
    report = probe("tiny", ["training.steps=7"], [str(data.path)], str(tmp_path / "not" / "yet"))
    assert report.problems == []
    assert report.torch == torch.__version__
    assert report.data == data.manifest.identity
    assert report.settings == settings_digest(resolve("tiny", ["training.steps=7"]).settings)
    assert report.settings != settings_digest(resolve("tiny").settings)
    assert 0 < report.needed_bytes < 1e9
    assert report.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert report.checkpoint == ""


def test_an_elastic_run_needs_torchft(data, tmp_path, monkeypatch):
    assert probe("tiny", [], [str(data.path)], str(tmp_path), elastic=True).problems == []
    monkeypatch.setitem(sys.modules, "torchft", None)
    [problem] = probe("tiny", [], [str(data.path)], str(tmp_path), elastic=True).problems
    assert "install dragoman[elastic]" in problem
    assert probe("tiny", [], [str(data.path)], str(tmp_path)).problems == []


def test_a_host_without_the_data_set_is_told_how_to_get_it(tmp_path):
    [problem] = probe("tiny", [], [str(tmp_path / "data")], str(tmp_path)).problems
    assert problem == f"has no data set {tmp_path / 'data'}: use --push to copy it there."


def test_all_problems_are_reported_together(data, tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data.path, copy)
    next((copy / "train").glob("*.tokens")).write_bytes(b"truncated")
    report = probe("no-such-recipe", [], [str(copy)], str(tmp_path))
    assert len(report.problems) == 2
    assert "no-such-recipe" in report.problems[0]
    assert "is incomplete" in report.problems[1]
    assert "use --push" in report.problems[1]


def test_a_host_needs_the_files_of_other_evaluation_sets(data, tmp_path):
    sets = [f"news={tmp_path / 'a'},{tmp_path / 'b'}"]
    [problem] = probe("tiny", [], [str(data.path)], str(tmp_path), also_evaluate=sets).problems
    assert problem.startswith(f"--also-evaluate news: {tmp_path / 'a'}: cannot be read (No such file or directory): ")


def test_a_host_needs_all_data_sets_of_a_mixture(data, old_data, tmp_path):
    mixture = [str(data.path), f"{old_data.path}@0.3"]
    assert probe("tiny", [], mixture, str(tmp_path)).data == open_data(mixture).manifest.identity
    report = probe("tiny", [], [mixture[0], f"{tmp_path / 'old'}@0.3"], str(tmp_path))
    assert report.problems == [f"has no data set {tmp_path / 'old'}: use --push to copy it there."]
    assert report.data == ""
