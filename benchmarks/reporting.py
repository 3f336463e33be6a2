"""Output of the benchmarks: a Markdown table, each row as soon as it is measured, and one line of JSON at the end."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A row of a table: one measured value."""

    name: str
    measured: str
    """The value as text, with its unit."""
    target: str
    """As text; empty if there is none."""
    value: Any
    """The value for the JSON line."""


def print_figures(benchmark: str, figures: Iterable[Figure], **details: Any) -> None:
    """Print a table of figures, then a JSON line with the figures and `details`."""
    print_row("figure", "measured", "target")
    print_row("---", "---", "---")
    rows = []
    for figure in figures:
        print_row(figure.name, figure.measured, figure.target)
        rows.append(asdict(figure))
    print_json(benchmark, **details, figures=rows)


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_json(benchmark: str, **content: Any) -> None:
    print(json.dumps({"benchmark": benchmark, **content}))
