"""Every code block of the README and of docs/ is run, or checked with a stated reason why it is not run."""

import ast
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml

import dragoman
from dragoman import cli, recipe

from .command_line import run_command
from .documentation import NOT_RUN, PAGES, ROOT, STEPS, Block, blocks, find_reason, make_recipes, make_world
from .shared_folder import shared_folder

BLOCKS = list(blocks())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNCHECKED = ("git", "nft")
"""Programs that are not ours, of which not even the options are checked."""
SERVERS = ("serve", "watch")


def of(*languages: str) -> Any:
    return pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in languages], ids=str)


def test_every_block_is_of_a_kind_that_is_run_or_checked():
    """Text holds no commands: those belong in a block of their own. The tutorial's `shell` has tests of its own."""
    kinds = {"sh", "shell", "console", "usage", "python", "signature", "toml", "json", "yaml", "text"}
    assert [str(block) for block in BLOCKS if block.language not in kinds] == []
    assert {block.page.name for block in BLOCKS if block.language == "shell"} <= {"tutorial.md"}
    commands = re.compile(r"^(\$ )?(dragoman|python|pip|curl) ", re.MULTILINE)
    assert [str(block) for block in BLOCKS if block.language == "text" and commands.search(block.text)] == []


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_every_reason_is_still_needed(pattern):
    code = [line for block in BLOCKS for line in (*block.commands, block.text)]
    assert any(re.match(pattern, line) for line in code)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files that the pages name, and recipes that train in seconds."""
    template = shared_folder(tmp_path_factory, "documentation", make_world)
    folder = tmp_path_factory.mktemp("world") / "world"
    shutil.copytree(template, folder, symlinks=True)
    make_recipes(folder.parent / "recipes")
    monkeypatch.setattr(recipe, "RECIPES", folder.parent / "recipes")
    monkeypatch.chdir(folder)
    program = folder.parent / "dragoman"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m dragoman "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder.parent}:{os.environ['PATH']}")
    return folder


@of("sh", "console")
def test_commands_run(block, world):
    for command in block.commands:
        if find_reason(command) is None:
            run(command)
        else:
            check(command)


def run(command: str) -> None:
    command = re.sub(r"training\.steps=\d{4,}", f"training.steps={STEPS}", command)  # As the recipes of the world.
    words = shlex.split(command)
    if words[0] == "curl":
        with RunningServer("models/en-de", "models/de-en", "--suggestions", "received") as url:
            ask(command.replace("http://127.0.0.1:8765", url))
    elif words[0] == "dragoman" and words[1] in SERVERS and "--new-key" not in words:
        with RunningServer(*words[2:], command=words[1]) as url:
            assert httpx.get(url).status_code == 200
    elif words[0] == "dragoman" and not re.search(r" [|>] ", command):
        make_anew(words)
        done = run_command(*words[1:])
        assert done.returncode == 0, done.stderr
    else:
        make_anew(words)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def make_anew(words: list[str]) -> None:
    """Remove an output that the world has, so that it is made."""
    if {"prepare", "train", "export", "synthesize"} & set(words) and "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)


def ask(command: str) -> None:
    done = subprocess.run(["bash", "-c", f"{command} --silent --fail-with-body"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in json.loads(done.stdout)


class RunningServer:
    """A server of ours while entered; gives its address."""

    def __init__(self, *arguments: str, command: str = "serve") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        port = ["--port", self.url.rpartition(":")[2]]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dragoman", command, *arguments, *port],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> str:
        while self.process.poll() is None:
            try:
                httpx.get(self.url)
                return self.url
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(self.process.stderr.read())

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def check(command: str) -> None:
    """Check the options and names of a command that is not run."""
    words = shlex.split(command)
    if words[:2] == ["pip", "install"]:
        for extras in re.findall(r"\[([\w,]+)\]", command):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    elif words[0] == "dragoman" and words[1] in typer.main.get_group(cli.app).commands:
        given = parse(words[1:])
        if words[1] == "launch":
            parse(given["command"])
    elif words[0] == "dragoman":
        assert set(words[1:]) <= {option for each in typer.main.get_command(cli.app).params for option in each.opts}
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "python":
        source = (ROOT / f"{words[2].replace('.', '/')}.py").read_text()
        source += (ROOT / "benchmarks" / "command_line.py").read_text()
        assert all(f'"{word}"' in source for word in words if word.startswith("--"))
    else:
        assert words[0] in UNCHECKED


def parse(words: list[str]) -> dict[str, Any]:
    """What the command line makes of a command of ours."""
    return typer.main.get_group(cli.app).commands[words[0]].make_context(words[0], list(words[1:])).params


def usages(block: Block) -> Iterator[tuple[str, set[str]]]:
    """Each command of a synopsis, with its options."""
    for line in block.commands:
        for part in line.removeprefix("dragoman ").split(" -- "):
            yield part.split()[0], set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", part))


@of("usage")
def test_synopses_name_commands_and_options_that_exist(block):
    assert re.search(r"\b[A-Z]{3,}\b", block.text), "without a placeholder, it can be run: it is sh"
    group = typer.main.get_group(cli.app)
    for name, options in usages(block):
        known = {option for parameter in group.commands[name].params for option in parameter.opts}
        assert options <= known, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_runs(page, world):
    """The blocks of a page one after the other, as in a notebook."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in BLOCKS:
        if block.page == page and block.language == "python":
            code = compile(block.text, f"{page}:{block.line}", "exec")
            if find_reason(block.text) is None:
                exec(code, names)
            else:
                check_names(block.text)


def check_names(program: str) -> None:
    """Check that the hosts of a program have the methods that it calls."""
    from .system.hosts import Host

    called = {node.attr for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Attribute)}
    assert "argostranslate" in program or all(hasattr(Host, name) for name in called)


def documented_signature(name: str) -> str:
    """A signature without types, but with the type that is returned."""
    signature = inspect.signature(getattr(dragoman, name))
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    returned = signature.return_annotation
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    shown = returned if isinstance(returned, str) else inspect.formatannotation(returned)
    return f"{name}{text} -> {shown}".replace("pathlib.", "").replace(f"{getattr(dragoman, name).__module__}.", "")


def test_the_signatures_are_those_of_the_functions():
    written = {" ".join(block.text.split()).replace("( ", "(") for block in BLOCKS if block.language == "signature"}
    functions = [name for name in dragoman.__all__ if inspect.isfunction(getattr(dragoman, name))]
    expected = {documented_signature(name) for name in functions if name != "no_progress"}
    assert written == expected


@of("toml")
def test_toml_can_be_read(block):
    assert tomllib.loads(block.text)


@of("yaml")
def test_yaml_can_be_read(block):
    assert yaml.safe_load(block.text)


@of("json")
def test_json_can_be_read(block):
    lines = block.text.splitlines()
    texts = lines if all(line.startswith("{") for line in lines) else ["".join(lines)]
    assert all(json.loads(text) for text in texts)
