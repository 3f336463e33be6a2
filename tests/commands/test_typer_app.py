"""Options that all commands have, and what scripts read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dragoman import cli
from dragoman.corpus.dataset import DataSet

from ..command_line import run_command
from ..small import TINY

COMMANDS = typer.main.get_group(cli.app).commands
FOR_PEOPLE = {"launch", "serve", "demo", "watch"}
"""Commands without a result for scripts: they run until they are stopped, on other machines, or to show something."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The command, under its own name: shells ask by it."""
    path = tmp_path / "dragoman"
    path.write_text(f"#!{sys.executable}\nfrom dragoman.cli import main\nmain()\n")
    path.chmod(0o755)
    return path


def complete(program: Path, shell: str, line: str) -> str:
    """What a shell is offered after a line, through the variables with which its script asks."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_TYPER_COMPLETE_ARGS": line}
    ask = {"_DRAGOMAN_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return subprocess.run([program], env={**os.environ, **words, **ask}, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_quiet(name):
    assert any("--quiet" in parameter.opts for parameter in COMMANDS[name].params)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - FOR_PEOPLE))
def test_every_command_with_a_result_prints_it_as_json(name):
    assert any("--json" in parameter.opts for parameter in COMMANDS[name].params)


def test_quiet_leaves_results_warnings_and_errors(data: DataSet, tmp_path: Path):
    run, model = str(tmp_path / "run"), str(tmp_path / "model")
    (tmp_path / "text.tsv").write_text("".join(f"This is line {n}.\tDies ist Zeile {n}.\n" for n in range(50)))
    options = ("-l", "en-de", "--workers", "1", "tokenizer.vocabulary_size=300")
    silent = [
        ("prepare", str(tmp_path / "text.tsv"), "--out", str(tmp_path / "data"), *options),
        ("train", "tiny", "--data", str(data.path), "--out", run, *TINY, "training.steps=2"),
        ("export", run, "--out", model),
    ]
    for words in silent:
        done = run_command(*words, "--quiet")
        assert done.returncode == 0, done.stderr
        assert (done.stdout, done.stderr) == ("", "")
    done = run_command("translate", model, "-q", stdin="One.\nTwo.\n")
    assert done.stdout.count("\n") == 2
    assert done.stderr == ""
    assert run_command("inspect", model, "-q").stdout
    assert "error: " in run_command("inspect", str(tmp_path / "nothing"), "-q").stderr


def test_what_was_made_is_described_as_json(data: DataSet, tmp_path: Path):
    run, model = str(tmp_path / "run"), str(tmp_path / "model")
    (tmp_path / "text.tsv").write_text("".join(f"This is line {n}.\tDies ist Zeile {n}.\n" for n in range(50)))
    options = ("-l", "en-de", "--workers", "1", "tokenizer.vocabulary_size=300", "--out", str(tmp_path / "data"))

    def result(*words: str) -> dict:
        done = run_command(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    prepared = result("prepare", str(tmp_path / "text.tsv"), *options)
    assert (prepared["data"], prepared["created"]) == (str(tmp_path / "data"), True)
    assert prepared["splits"]["train"]["pairs"]
    trained = result("train", "tiny", "--data", str(data.path), "--out", run, *TINY, "training.steps=2")
    assert (trained["run"], trained["step"], trained["ended"]) == (run, 2, "finished")
    assert trained["evaluations"][-1]["bleu"] is not None
    exported = result("export", run, "--out", model)
    assert exported == result("inspect", model)
    assert result("export", run, "--to", "argos", "--out", f"{model}.argosmodel")["format"] == "argos"
    assert "demo" in [corpus["name"] for corpus in json.loads(run_command("prepare", "--list", "--json").stdout)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_recipes(shell, program):
    assert "train" in complete(program, shell, "dragoman tr")
    assert "--workers" in complete(program, shell, "dragoman train --w")
    assert "transformer-base" in complete(program, shell, "dragoman train transformer")


RECIPE_PLACES = {
    "train": "",
    "learning-curve": "",
    "config": "",
    "doctor": "",
    "prepare": "text.tsv --recipe ",
    "distill": "runs/base --recipe ",
    "launch": "--hosts a -- train ",
}
"""Commands that take a recipe, and the words before it."""


@pytest.mark.parametrize("name", RECIPE_PLACES)
def test_recipes_are_completed_wherever_one_is_taken(name, program):
    assert "transformer-base" in complete(program, "bash", f"dragoman {name} {RECIPE_PLACES[name]}transformer")


def test_the_list_of_commands_that_take_a_recipe_is_complete():
    def takes_recipe(command):
        return any("recipe" in f"{each.name} {each.metavar}".lower() for each in command.params)

    assert set(RECIPE_PLACES) == {name for name, command in COMMANDS.items() if takes_recipe(command)}


def test_the_script_for_bash_completes_in_bash(program):
    script = subprocess.check_output([program], env={**os.environ, "_DRAGOMAN_COMPLETE": "source_bash"}, text=True)
    ask = "COMP_WORDS=(dragoman transl); COMP_CWORD=1; _dragoman_completion dragoman; echo ${COMPREPLY[@]}"
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    shown = subprocess.check_output(["bash", "-c", f"{script}\n{ask}"], env=environment, text=True)
    assert shown.strip() == "translate"
