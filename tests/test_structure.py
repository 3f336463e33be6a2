"""The shape of the source: names are unique, and modules, classes and functions stay short."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

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
