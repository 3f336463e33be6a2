import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dragoman import cli, event_json
from dragoman.corpus import catalog
from dragoman.corpus.corpus_choice import find_corpus
from dragoman.errors import DragomanError
from dragoman.recipe import as_markdown

from .command_line import run_command

DOCS = Path(__file__).parents[1] / "docs"
README = Path(__file__).parents[1] / "README.md"
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]


def run(*arguments: str, cwd: Path | None = None, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=stdin, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    shown = CliRunner().invoke(cli.app, [command, "--help"]).output
    assert "Example" in shown
    assert f"dragoman {command}" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_word(command):
    shown = CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "1000"}).output
    parsed = typer.main.get_command(cli.app).commands[command]
    texts = [parsed.help, *(parameter.help or "" for parameter in parsed.params)]
    words = " ".join(texts).replace("`", "").replace("**", "").split()
    assert [word for word in words if word not in shown.split()] == []  # `<BT>` in Markdown is markup, and disappears.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command):
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert f"dragoman {command}" in pages


def test_the_commands_that_print_json_are_documented():
    listed = (DOCS / "install.md").read_text().partition("These commands have it:")[2].partition("After `launch`")[0]
    commands = typer.main.get_group(cli.app).commands
    have_it = {name for name, command in commands.items() if any("--json" in each.opts for each in command.params)}
    assert set(re.findall(r"`([a-z-]+)`", listed)) == have_it


def test_launch_refuses_json_and_names_the_command_that_prints_it(tmp_path):
    words = ("train", "tiny", "--data", str(tmp_path), "--out", "runs/base", "--json")
    done = run_command("launch", "--hosts", "a,b", "--", *words)
    assert done.returncode == cli.EXIT_USER_ERROR
    assert "run `dragoman report runs/base --json` on a afterwards." in done.stderr


@pytest.mark.parametrize("page", [README, DOCS / "index.md"], ids=lambda page: page.name)
def test_the_overviews_list_every_command_and_link_every_page(page):
    text = page.read_text()
    assert [command for command in COMMANDS if f"\ndragoman {command} " not in text] == []
    links = {(page.parent / target).resolve() for target in LINK.findall(text)} | {page}
    assert [other.name for other in DOCS.glob("*.md") if other not in links and other.name != "index.md"] == []


def test_every_setting_is_documented_as_it_is():
    assert (DOCS / "settings.md").read_text() == as_markdown(), "run `python -m dragoman.recipe > docs/settings.md`"


@pytest.mark.parametrize("name", event_json.KINDS)
def test_every_event_and_its_fields_are_documented(name):
    page = (DOCS / "events.md").read_text()
    assert f"`{name}`" in page
    section = page.partition(f"## `{name}`")[2].partition("\n## ")[0]
    for field in event_json.own_fields(event_json.KINDS[name]):
        assert f"`{field}`" in section, f"{name}.{field} is not in docs/events.md"


@pytest.mark.parametrize("corpus", [description.name for description in catalog.descriptions()])
def test_every_corpus_is_documented(corpus):
    assert f"`{corpus}`" in (DOCS / "prepare.md").read_text()


def test_the_documentation_links_to_pages_that_exist():
    for page in (*DOCS.glob("*.md"), README):
        for target in LINK.findall(page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from dragoman import cli; print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_a_mistake_is_one_sentence_and_no_traceback(tmp_path):
    done = run("inspect", str(tmp_path))
    assert done.returncode == cli.EXIT_USER_ERROR
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "check the path" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("place", ["models/mine", None])
def test_what_a_disk_refuses_is_one_sentence_and_no_traceback(monkeypatch, capsys, place):
    def refuse(**_):
        raise OSError(28, "No space left on device", place)

    monkeypatch.setattr(cli, "app", refuse)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == cli.EXIT_USER_ERROR
    assert f"{place or 'A file'} cannot be used (No space left on device)" in capsys.readouterr().err


@pytest.mark.parametrize(("wrong", "right"), [("wmt16-en-fe", "wmt16-en-de"), ("demoo", "demo")])
def test_a_misspelt_corpus_is_corrected(tmp_path, wrong, right):
    done = run("prepare", wrong, "--out", str(tmp_path / "data"))
    assert done.returncode == cli.EXIT_USER_ERROR
    assert f"did you mean {right}?" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train demo --data d --out r --steps 100", "training.steps=100"),
        ("train demo --data d --out r --learning-rate=2", "schedule.learning_rate=2"),
        ("train demo --data d --out r --training.steps 7", "training.steps=7"),
        ("launch --hosts a -- train demo --data d --out r --steps 100", "training.steps=100"),
        ("launch --hosts a --steps 100 -- train demo --data d --out r", "training.steps=100"),
        ("train demo --data d --out r --lr 0.1", "schedule.learning_rate=VALUE or fine_tuning.learning_rate=VALUE"),
        ("train demo --data d --out r --batch-size=32", "batch.tokens=VALUE"),
        ("translate model --beam 8", "decoding.beam=8"),
        ("prepare demo --out d --max-words 9", "cleaning.max_words=9"),
        ("doctor tiny --tokens 9", "batch.tokens=9"),
        ("config tiny --beam", "decoding.beam=VALUE"),
    ],
)
def test_a_setting_written_as_an_option_gets_the_way_to_write_it(words, meant):
    done = run_command(*words.split())
    assert done.returncode == cli.EXIT_USER_ERROR
    assert f"is not an option: settings are written key=value. Use {meant}" in done.stderr


def test_a_misspelt_option_is_corrected():
    done = run_command("train", "demo", "--data", "d", "--out", "r", "--worker", "2")
    assert done.returncode == cli.EXIT_USER_ERROR
    assert "--workers" in done.stderr


def test_prepare_from_a_pipe_then_inspect(tmp_path):
    text = "".join(f"This is sentence number {n}.\tDies ist Satz Nummer {n}.\n" for n in range(3000))
    arguments = [
        "prepare",
        "-",
        "-l",
        "en-de",
        "--out",
        str(tmp_path / "data"),
        "tokenizer.vocabulary_size=400",
        "--workers",
        "1",
    ]
    done = run(*arguments, stdin=text)
    assert done.returncode == 0, done.stderr
    assert "is ready" in done.stdout
    shown = run("inspect", str(tmp_path / "data"))
    assert "before cleaning" in shown.stdout
    content = json.loads(run("inspect", str(tmp_path / "data"), "--json").stdout)
    assert content["splits"]["train"]["pairs"] + content["splits"]["valid"]["pairs"] == 3000
    assert sum(content["lengths"]["train"]["source"].values()) == content["splits"]["train"]["pairs"]


def test_config_shows_the_origin_of_each_value():
    content = json.loads(run("config", "tiny", "cleaning.max_words=33", "--json").stdout)
    assert content["cleaning.max_words"] == {"value": 33, "origin": "command line"}
    assert content["model.d_model"]["origin"] == "recipe tiny"
    assert content["optimizer.beta1"]["origin"] == "default"


def test_the_catalog_can_be_listed():
    shown = run("prepare", "--list").stdout
    assert all(description.name in shown for description in catalog.descriptions())


@pytest.mark.parametrize("languages", ["en", "en-de-fr", "en-en", "-de"])
def test_a_direction_that_is_none_is_refused(languages):
    with pytest.raises(DragomanError, match="not a direction"):
        find_corpus(["a.tsv"], [], [], languages, None, None, None)


def test_the_settings_are_shown_without_a_recipe():
    assert "model.d_model" in run_command("config").stdout
