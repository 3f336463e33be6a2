"""Commands and functions in installations that lack an extra."""

import importlib.metadata
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dragoman
from dragoman import cli
from dragoman.corpus.dataset import DataSet
from dragoman.decoding.ctranslate2_translator import DESCRIPTION_FILE
from dragoman.extras import EXTRA_OF_MODULE, missing_extra

from .peer_environment import PACKAGES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]
ARGUMENTS = {
    "prepare": "demo --out {folder}/data cleaning.max_words=wrong",
    "train": "tiny --data {folder} --out {folder}/run",
    "learning-curve": "tiny --data {folder} --out {folder}/runs",
    "launch": "--hosts localhost -- train tiny --data {folder} --out {folder}/run",
    "translate": "{folder} {folder}/text",
    "synthesize": "{folder} {folder}/text --out {folder}/corpus",
    "score": "{folder}/text --ref {folder}/text",
    "export": "{folder} --out {folder}/export",
    "distill": "{folder} --data {folder} --out {folder}/student",
    "serve": "{folder}",
    "demo": "--out {folder}/text/demo",
    "doctor": "tiny training.steps=wrong",
    "report": "{folder}",
    "watch": "{folder} --port 0",
    "inspect": "{folder}",
    "config": "tiny",
}
NEEDS = {
    "train": {"train", "launch", "learning-curve", "demo", "distill", "doctor", "export", "inspect"},
    "serve": {"serve", "watch"},
}
"""Commands that need an extra whatever their arguments are."""
WITHOUT_TRAINING = f"""
import json, sys
from pathlib import Path
sys.modules |= dict.fromkeys({[module for module, extra in EXTRA_OF_MODULE.items() if extra == "train"]})
import dragoman
folder = Path(sys.argv[1])
data, text, pairs, model = sys.argv[2], folder / "text.txt", folder / "pairs.tsv", folder / "model"
def show(name, call):
    try:
        call()
    except dragoman.DragomanError as error:
        print(json.dumps([name, str(error)]))
"""
"""A script that calls functions as if the modules of training were not installed."""
CALLS = {
    "prepare": 'pairs, folder / "data", languages="en-de", score_with=model, workers=1',
    "train": '"tiny", data, folder / "run"',
    "learning_curve": '"tiny", data, folder / "runs"',
    "load": "model",
    "translate": 'model, "A line."',
    "translate_files": 'model, [text], folder / "translated.txt"',
    "score": "model, source=text, reference=text",
    "compare": "model, model, source=text, reference=text",
    "export": 'model, folder / "export"',
    "report": "folder",
    "synthesize": 'model, text, folder / "corpus"',
    "distill": 'model, data, folder / "student"',
}
"""Arguments of the functions of the Python API, with a model that is not an export."""


def run_without(extra: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as if the modules of an extra were not installed."""
    modules = [module for module, home in EXTRA_OF_MODULE.items() if home == extra]
    code = f"import sys; sys.modules |= dict.fromkeys({modules}); from dragoman import cli; cli.main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("extra", NEEDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_extra_is_missing_says_so_in_one_sentence(command: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("A line.\n")
    done = run_without(extra, command, *ARGUMENTS[command].format(folder=tmp_path).split())
    assert "Traceback" not in done.stderr
    remedy = f"pip install 'dragoman[{extra}]'"
    if command in NEEDS[extra]:
        assert done.returncode == cli.EXIT_USER_ERROR
        assert re.fullmatch(r"error: This needs \w+, which is not installed: run `.*`\.\n", done.stderr)
        assert remedy in done.stderr
    else:
        assert remedy not in done.stderr


def test_a_function_whose_extra_is_missing_raises_an_error_with_the_remedy(tmp_path: Path, data: DataSet) -> None:
    functions = {name for name in dragoman.__all__ if inspect.isfunction(getattr(dragoman, name))}
    assert set(CALLS) == functions - {"no_progress"}
    (tmp_path / "text.txt").write_text("A line.\n")
    (tmp_path / "pairs.tsv").write_text("A line.\tEine Zeile.\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / DESCRIPTION_FILE).write_text("{}")
    code = WITHOUT_TRAINING + "".join(f"show({name!r}, lambda: dragoman.{name}({CALLS[name]}))\n" for name in CALLS)
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, data.path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    raised = dict(json.loads(line) for line in done.stdout.splitlines())
    assert set(raised) == functions - {"no_progress"}
    remedy = "which is not installed: run `pip install 'dragoman[train]'`."
    assert {name for name, message in raised.items() if remedy not in message} == {"report"}


def test_a_missing_module_that_no_extra_installs_is_a_bug() -> None:
    assert missing_extra(ModuleNotFoundError(name="rich")) is None


def test_the_modules_are_those_of_the_extras() -> None:
    distributions = importlib.metadata.packages_distributions()
    for extra in ("train", "serve", "elastic"):
        declared = {re.match(r"[\w-]+", requirement)[0] for requirement in PROJECT["optional-dependencies"][extra]}
        modules = [module for module, home in EXTRA_OF_MODULE.items() if home == extra]
        assert {distributions[module][0].replace("_", "-") for module in modules} == declared - {"dragoman"}


def test_every_extra_for_users_is_documented() -> None:
    table = (ROOT / "docs" / "install.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert documented == PROJECT["optional-dependencies"].keys() - {"dev"}


@pytest.mark.parametrize("package", ["trackio", "wandb"])
def test_trackers_without_a_stable_interface_are_at_least_as_new_as_tested(package: str) -> None:
    [tested] = [pinned.partition("==")[2] for pinned in PACKAGES if pinned.startswith(f"{package}==")]
    minor_version = tested.rpartition(".")[0]
    assert f"{package}>={minor_version}" in PROJECT["optional-dependencies"]["trackers"]


def test_serving_and_documents_import_nothing_of_training() -> None:
    modules = "dragoman.serving.app, dragoman.serving.model_loading, dragoman.documents.file_translation, dragoman"
    code = f"import sys, {modules}; print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {module for module, extra in EXTRA_OF_MODULE.items() if extra == "train"} & set(imported)
