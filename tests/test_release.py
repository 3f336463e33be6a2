"""Release automation: what the workflows call exists, and the checks find what is wrong."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dragoman

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the files that a release is checked by."""
    for name in (".ci/release.py", "src/dragoman/__init__.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def release(project: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, project / ".ci" / "release.py", *words]
    return subprocess.run(command, capture_output=True, text=True)


def name_section(project: Path, name: str) -> None:
    changelog = project / "CHANGELOG.md"
    changelog.write_text(re.sub(r"^## \[.*$", f"## {name}", changelog.read_text(), count=1, flags=re.MULTILINE))


def test_a_release_has_one_version_and_a_day(project: Path) -> None:
    name_section(project, f"[{dragoman.__version__}] - 2026-01-31")
    for tag in ([], [f"v{dragoman.__version__}"]):
        done = release(project, "check", *tag)
        assert done.returncode == 0, done.stderr
    notes = release(project, "notes").stdout
    assert notes.startswith("### ")
    assert "\n## " not in notes


@pytest.mark.parametrize(
    ("section", "tag", "problem"),
    [
        ("[Unreleased]", [], "CHANGELOG.md begins with [Unreleased]"),
        ("[99.0.0] - 2026-01-31", [], "CHANGELOG.md begins with [99.0.0]"),
        (f"[{dragoman.__version__}]", [], "has no day"),
        (f"[{dragoman.__version__}] - 2026-01-31", ["v99.0.0"], "The tag v99.0.0 does not name the version"),
    ],
)
def test_what_does_not_agree_is_refused(project: Path, section: str, tag: list[str], problem: str) -> None:
    name_section(project, section)
    done = release(project, "check", *tag)
    assert done.returncode == 1
    assert problem in done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_exists(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert {"name", "jobs"} < set(content)
    assert True in content, "`on` is what YAML reads as true"
    for job in content["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            script = step.get("run", "")
            assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
            for target in re.findall(r"\bmake ([a-z-]+)", script):
                assert target in TARGETS
            for called in re.findall(r"\.ci/[\w.]+", script):
                assert (ROOT / called).exists()


@pytest.mark.system
def test_the_source_archive_makes_the_wheel_and_both_pass_twine(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    made = sorted(path.name for path in tmp_path.iterdir())
    version = dragoman.__version__
    assert made == [f"dragoman-{version}-py3-none-any.whl", f"dragoman-{version}.tar.gz"]
    check = [sys.executable, "-m", "twine", "check", "--strict", *tmp_path.iterdir()]
    assert subprocess.run(check, capture_output=True, text=True).returncode == 0
