"""The shape of the source: names are unique, and modules, classes and functions stay short."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from .conftest import GROUPS

SOURCE = Path(__file__).parents[1] / "src" / "dragoman"
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_LINES = {ast.ClassDef: 200, ast.FunctionDef: 70, ast.AsyncFunctionDef: 70}
MAX_MODULE_LINES = 420


def test_no_two_modules_share_a_name():
    places = defaultdict(list)
    for path in MODULES:
        if path.name not in ("__init__.py", "__main__.py"):
            places[path.stem].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_guide_for_contributors_lists_exactly_what_is_there():
    tree = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text().partition("src/dragoman/")[2].partition("```")[0]
    listed = {line.split()[0] for line in tree.partition("\ntests/")[0].splitlines()[1:]}
    packages = {f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")} | {"recipes/"}
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert listed == packages | modules


def test_the_readme_lists_every_package():
    tree = (SOURCE.parents[1] / "README.md").read_text().partition("src/dragoman/")[2].partition("```")[0]
    assert [path.parent.name for path in SOURCE.glob("*/__init__.py") if f"  {path.parent.name}/ " not in tree] == []


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_classes_and_functions_are_short(path):
    text = path.read_text()
    assert text.count("\n") <= MAX_MODULE_LINES
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if (limit := MAX_LINES.get(type(node))) and node.end_lineno - node.lineno + 1 > limit
    ]
    assert long == []


def test_grouped_test_modules_exist():
    """A renamed module would silently run side by side with the others of its group."""
    present = {path.stem for path in (Path(__file__).parent / "system").glob("test_*.py")}
    assert {module for modules in GROUPS.values() for module in modules} <= present
