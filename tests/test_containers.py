"""Images and compose files: what can be checked without an engine."""

import json
import re
import shlex
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.serving.limits import Limits
from dragoman.serving.openapi import make_openapi_document

from .command_line import parse_command

ROOT = Path(__file__).parents[1]
IMAGES = sorted(ROOT.glob("examples/**/*Dockerfile"))
COMPOSITIONS = [path for path in sorted(ROOT.glob("examples/**/*.yaml")) if "services" in path.read_text()]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
SERVICE_KEYS = {
    "build", "cap_drop", "command", "entrypoint", "gpus", "hostname", "networks", "ports", "read_only", "restart",
    "secrets", "security_opt", "shm_size", "stop_grace_period", "tmpfs", "volumes",
}  # fmt: skip


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "examples"))


def read_image(path: Path) -> list[tuple[str, str]]:
    """Instructions and their arguments."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined if line]


def services(path: Path) -> dict[str, dict[str, Any]]:
    return yaml.safe_load(path.read_text())["services"]


def check_command(entrypoint: list[str], words: list[str]) -> dict[str, Any]:
    """Parse what an image runs, unless it is the help."""
    program, *first = entrypoint
    assert program == "dragoman"
    return {} if "--help" in words else parse_command([*first, *words])


@pytest.mark.parametrize("path", IMAGES, ids=name_of)
def test_an_image_is_made_of_files_that_exist_and_are_in_its_context(path: Path) -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    image = read_image(path)
    assert {name for name, _ in image} <= INSTRUCTIONS
    stages = {match[1] for name, rest in image if name == "FROM" and (match := re.search(r" AS (\w+)$", rest))}
    copied = set()
    for name, rest in image:
        if name == "COPY" and (stage := re.match(r"--from=(\w+) ", rest)):
            assert stage[1] in stages
        elif name == "COPY":
            *sources, _ = shlex.split(rest)
            copied |= set(sources)
            assert all((ROOT / source).exists() for source in sources)
            assert all(any(fnmatch(f"!{source}", line) for line in ignored) for source in sources)
        elif name == "RUN":
            assert subprocess.run(["bash", "-n"], input=rest, text=True).returncode == 0
            for extras in re.findall(r"\[([a-z,]+)\]", rest):
                assert set(extras.split(",")) <= set(EXTRAS)
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} <= copied, "the build of the package needs them"


@pytest.mark.parametrize("path", IMAGES, ids=name_of)
def test_an_image_runs_commands_that_exist(path: Path) -> None:
    image = dict(read_image(path))
    check_command(json.loads(image["ENTRYPOINT"]), json.loads(image["CMD"]))
    for shown in re.findall(r"^# +docker run .* dragoman[\w-]* (.+)$", path.read_text(), re.MULTILINE):
        check_command(json.loads(image["ENTRYPOINT"]), shlex.split(shown))


def test_the_server_has_no_privileges_and_is_asked_whether_it_lives() -> None:
    image = dict(read_image(ROOT / "examples/serve/Dockerfile"))
    assert image["USER"] == "nobody"
    port, asked = re.search(r"http://127.0.0.1:(\d+)(/\w+)", image["HEALTHCHECK"]).groups()
    assert asked in make_openapi_document(Limits(), [])["paths"]
    given = check_command(json.loads(image["ENTRYPOINT"]), ["model"])
    assert str(given["port"]) == port == image["EXPOSE"]


@pytest.mark.parametrize("path", COMPOSITIONS, ids=name_of)
def test_a_composition_has_only_known_keys_and_files_that_exist(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    for service in services(path).values():
        assert set(service) <= SERVICE_KEYS
        context = (path.parent / service["build"]["context"]).resolve()
        assert context == ROOT
        assert context / service["build"]["dockerfile"] in IMAGES
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in content["volumes"]


@pytest.mark.parametrize("path", COMPOSITIONS, ids=name_of)
def test_a_composition_runs_commands_that_exist_on_the_ports_it_publishes(path: Path) -> None:
    for service in services(path).values():
        if "entrypoint" in service:  # Another program than ours.
            continue
        image = dict(read_image(ROOT / service["build"]["dockerfile"]))
        given = check_command(json.loads(image["ENTRYPOINT"]), service["command"])
        for published in service.get("ports", []):
            address, _, inside = published.rsplit(":", 2)
            assert address == "127.0.0.1", "nobody else reaches it unless the operator decides so"
            assert inside == str(given["port"])
    for name, shown in re.findall(r"^# +docker compose .* run --rm (\w+) (.+)$", path.read_text(), re.MULTILINE):
        image = dict(read_image(ROOT / services(path)[name]["build"]["dockerfile"]))
        check_command(json.loads(image["ENTRYPOINT"]), shlex.split(shown))
