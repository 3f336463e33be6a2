from pathlib import Path

from dragoman.launch.launch_request import LaunchRequest, working_folder
from dragoman.launch.ssh import Machine
from dragoman.recipe import resolve


def test_every_worker_gets_the_same_arguments():
    request = LaunchRequest(
        [Machine("b"), Machine("a")],
        "tiny",
        ["new", "old@0.3"],
        Path("run"),
        ["training.steps=3"],
        resolve("tiny", []).settings,
        also_evaluate=["news=a.en,a.de"],
    )
    options = ["--data", "new", "--data", "old@0.3", "--also-evaluate", "news=a.en,a.de", "--out", "run"]
    assert request.arguments == ["train", "tiny", *options, "training.steps=3"]
    assert request.hosts == ["b", "a"]
    assert request.first == "b"


def test_a_folder_below_the_home_is_relative_to_it(tmp_path, monkeypatch):
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert working_folder() == "~/work"
    monkeypatch.chdir(tmp_path)
    assert working_folder() == str(tmp_path)
