"""The tutorial: its commands exist, and belong together. `python -m benchmarks.tutorial` runs them."""

import runpy
import shlex
from pathlib import Path

from benchmarks.tutorial import ROOT, shell_blocks

from dragoman.recipe import resolve

from .test_examples import parse

PAGE = ROOT / "docs" / "tutorial.md"
COMMANDS = [
    shlex.split(line, comments=True) for block in shell_blocks(PAGE) for line in block.replace("\\\n", " ").splitlines()
]


def after(words: list[str], program: str) -> list[str]:
    return words[words.index(program) + 1 :]


def test_every_command_is_one_that_exists():
    two_hosts = runpy.run_path(str(ROOT / "examples" / "two-hosts"))["COMMANDS"]
    for words in COMMANDS:
        if "dragoman" in words:
            given = parse(after(words, "dragoman"))
            if "command" in given:
                trained = parse(given["command"])
                assert resolve(trained["recipe"], trained["overrides"])
        elif words[0] == "examples/two-hosts":
            assert two_hosts[words[1]] == len(words) - 2
        else:
            assert words[0] in ("make", "source", "ssh")


def test_hosts_are_created_before_they_are_used_and_removed_at_the_end():
    uses = [words for words in COMMANDS if words[0] == "examples/two-hosts" or "hosts/ssh_config" in words]
    assert uses[0] == ["examples/two-hosts", "up"]
    assert uses[-1] == COMMANDS[-1] == ["examples/two-hosts", "down"]


def test_every_run_that_is_looked_at_was_trained_before():
    made: set[Path] = set()
    for words in COMMANDS:
        if "launch" in words:
            made.add(parse(parse(after(words, "dragoman"))["command"])["out"])
        for word in words:
            assert not word.startswith("runs/") or Path(word) in made


def test_all_eleven_questions_are_answered():
    text = PAGE.read_text()
    assert all(f"\n**{number}. " in text for number in range(1, 12))
    assert text.count("\nLearn: ") >= 11
