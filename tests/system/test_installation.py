"""Dragoman as users install it: from a wheel, in a fresh environment, for serving alone."""

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.install import build_wheel, install, installed_packages, make_environment, size_bytes

import dragoman

from ..insight.synthetic_runs import synthetic_run, write_run
from ..models import LINES
from ..serving.conftest import exports  # noqa: F401 (a fixture)
from .test_serving import Server

pytestmark = pytest.mark.system
SOURCE = Path(dragoman.__file__).parent
MAX_MEGABYTES = 400


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_environment(tmp_path_factory.mktemp("installation"))
    install(folder, wheel, "serve")
    return folder


def run(environment: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """Run the installed command. Nothing of this checkout is on its path."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [environment / "bin" / "dragoman", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd="/")


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith("dragoman-")}
    files = {
        f"dragoman/{path.relative_to(SOURCE)}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == files


def test_a_server_needs_no_torch_and_little_space(environment: Path) -> None:
    assert run(environment, "--version").stdout == f"dragoman {dragoman.__version__}\n"
    assert not {"torch", "safetensors", "tensorboard", "psutil"} & installed_packages(environment)
    assert size_bytes(environment) < MAX_MEGABYTES * 1e6
    pip = [environment / "bin" / "python", "-m", "pip", "check", "--disable-pip-version-check"]
    assert subprocess.run(pip, capture_output=True, text=True).returncode == 0


def test_it_translates_scores_prepares_and_reports(environment: Path, exports: list[Path], tmp_path: Path) -> None:  # noqa: F811
    translated = run(environment, "translate", exports[0], *LINES[:2])
    assert translated.returncode == 0, translated.stderr
    assert translated.stdout.splitlines() == dragoman.load(exports[0], "cpu").translate(LINES[:2])
    (tmp_path / "text.tsv").write_text("".join(f"This is line {n}.\tDies ist Zeile {n}.\n" for n in range(99)))
    (tmp_path / "page.html").write_text("<p>The dog sleeps.</p>")
    for words in (
        ("prepare", tmp_path / "text.tsv", "-l", "en-de", "--out", tmp_path / "data", "tokenizer.vocabulary_size=300"),
        ("inspect", tmp_path / "data"),
        ("inspect", exports[0]),
        ("score", tmp_path / "text.tsv", "--ref", tmp_path / "text.tsv"),
        ("translate", exports[0], tmp_path / "page.html", "--out", tmp_path / "page.de.html"),
        ("report", write_run(tmp_path / "run", synthetic_run(20))),
        ("config", "modern"),
    ):
        done = run(environment, *words)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words", ["train tiny --data x --out y", "demo --out x", "doctor", "export x --out y", "launch --hosts a train"]
)
def test_commands_for_training_say_what_to_install(environment: Path, words: str) -> None:
    done = run(environment, *words.split())
    assert done.returncode == 2
    assert done.stderr.endswith("which is not installed: run `pip install 'dragoman[train]'`.\n")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def server(environment: Path, exports: list[Path]) -> Iterator[Server]:  # noqa: F811
    running = Server(*map(str, exports), python=environment / "bin" / "python")
    yield running
    assert "Traceback" not in running.stop()


def test_it_serves_the_page_and_translations(server: Server) -> None:
    assert "<html" in httpx.get(server.url).text
    fields = {"q": LINES[0], "source": "auto", "target": "de"}
    assert httpx.post(f"{server.url}/translate", json=fields).json()["translatedText"]
