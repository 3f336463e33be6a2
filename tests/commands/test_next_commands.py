"""Commands end with the next step, and say which settings of a recipe they use."""

import json
import shlex
from pathlib import Path

import pytest

from dragoman.corpus.dataset import DataSet
from dragoman.launch import ssh_launcher

from ..command_line import parse_command, run_command
from ..small import TINY


def next_commands(output: str) -> list[list[str]]:
    """The words of the commands after `Next:`."""
    lines = output.partition("Next:\n")[2].splitlines()
    return [shlex.split(line.strip().partition("  ")[0]) for line in lines]


def test_training_ends_with_commands_that_exist(data: DataSet, tmp_path: Path) -> None:
    run = tmp_path / "it's my run"
    done = run_command("train", "tiny", "--data", str(data.path), "--out", str(run), *TINY, "training.steps=1")
    assert done.returncode == 0, done.stderr
    commands = next_commands(done.stdout)
    assert [words[:3] for words in commands] == [
        ["dragoman", name, str(run)] for name in ("report", "translate", "export")
    ]
    for _, *words in commands:
        parse_command(words)


@pytest.mark.parametrize("variable", ["RANK", "DRAGOMAN_HOST"])
def test_only_one_of_several_workers_prints_them(variable: str, data: DataSet, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv(variable, "1")
    words = ("train", "tiny", "--data", str(data.path), "--out", str(tmp_path / "run"), *TINY, "training.steps=1")
    assert "Next:" not in run_command(*words).stdout


def test_a_log_of_json_lines_ends_without_them(data: DataSet, tmp_path: Path, monkeypatch) -> None:
    words = ("train", "tiny", "--data", str(data.path), "--out", str(tmp_path / "run"), *TINY, "training.steps=2")
    as_json = "telemetry.log_format=json"
    trained = run_command(*words, as_json)
    assert trained.returncode == 0, trained.stderr
    lines = [json.loads(line) for line in trained.stdout.splitlines()]
    assert lines[-1]["event"] == "run_ended"

    monkeypatch.setattr(ssh_launcher, "launch", lambda *_: "finished")
    assert "Next on a:" in run_command("launch", "--hosts", "a", "--", *words).stdout
    assert run_command("launch", "--hosts", "a", "--", *words, as_json).stdout == ""


def test_preparation_leads_to_training_with_the_same_recipe(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("".join(f"This is line {n}.\tDies ist Zeile {n}.\n" for n in range(50)))
    out = str(tmp_path / "my data")
    arguments = (
        "prepare",
        str(tmp_path / "text.tsv"),
        "-l",
        "en-de",
        "--out",
        out,
        "--recipe",
        "tiny",
        "--workers",
        "1",
    )
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    inspect, train = next_commands(done.stdout)
    assert inspect == ["dragoman", "inspect", out]
    assert train == ["dragoman", "train", "tiny", "--data", out, "--out", "RUN"]


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_the_help_says_which_settings_of_a_recipe_have_an_effect(command: str) -> None:
    shown = " ".join(run_command(command, "--help").stdout.split())
    assert "corpus, cleaning, augmentation and tokenizer settings" in shown
