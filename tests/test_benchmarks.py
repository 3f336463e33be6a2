"""The benchmarks: their documentation names only modules and sections that exist, and says when it was measured."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"python -m benchmarks\.(\w+)((?: [\w./=-]+)*)")
RESULTS = (ROOT / "docs" / "benchmarks.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", RESULTS, re.MULTILINE))
ONLY = re.compile(r"`--only ([\w-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_commands_name_existing_benchmarks_and_options(page):
    for name, arguments in COMMAND.findall(page.read_text()):
        module = ROOT / "benchmarks" / f"{name}.py"
        assert module.is_file(), name
        source = module.read_text() + (ROOT / "benchmarks" / "command_line.py").read_text()
        words = arguments.split()
        for option in (word for word in words if word.startswith("--")):
            assert f'"{option}"' in source, (name, option)
        if "--only" in words:
            sections = [word for word in words[words.index("--only") + 1 :] if not re.match(r"--|\d", word)]
            assert all(f'"{section}"' in source for section in sections), (name, sections)


def test_docstring_of_every_benchmark_shows_its_command():
    for module in (ROOT / "benchmarks").glob("*.py"):
        source = module.read_text()
        # The batch logger runs in the environment of another toolkit, by its path.
        if 'if __name__ == "__main__":' in source and module.stem != "toolkit_batch_logger":
            assert f"python -m benchmarks.{module.stem}" in source, module.name


def test_every_benchmark_has_a_section_in_the_documentation():
    commands = set(re.findall(r"^\| \[.+?\]\(#.+?\) \| `python -m benchmarks\.(\w+)", RESULTS, re.MULTILINE))
    modules = {
        module.stem for module in (ROOT / "benchmarks").glob("*.py") if "print_figures(" in module.read_text()
    } - {"reporting", "host_runs"}
    assert modules <= commands, modules - commands


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_names_its_command_and_the_day_of_its_figures(name):
    section = SECTIONS[name]
    commands = COMMAND.findall(section)
    assert commands
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", section)
    sources = "".join((ROOT / "benchmarks" / f"{module}.py").read_text() for module, _ in commands)
    assert all(f'"{option}"' in sources for option in ONLY.findall(section))


def test_every_table_of_figures_carries_the_day():
    for header in re.findall(r"^\| figure .*$", RESULTS, re.MULTILINE):
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", header), header
