"""`dragoman score`: BLEU and chrF of a system, or a comparison of two."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    AsJson,
)


def score(
    systems: Annotated[list[str], typer.Argument(help="One or two: a run or model, or a file of translations.")],
    source: Annotated[Path | None, typer.Option("--src", help="Source text, for models to translate.")] = None,
    reference: Annotated[Path | None, typer.Option("--ref", help="Reference translations.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Take both from this data set instead.")] = None,
    split: Annotated[str, typer.Option("--split", help="Which set of --data: test or valid.")] = "test",
    compare: Annotated[bool, typer.Option("--compare", help="Insist on two systems and compare them.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page of where two systems differ most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score translations with sacreBLEU and chrF, or compare two systems by paired bootstrap.

    **Examples**

        dragoman score runs/demo/run --data runs/demo/data

        dragoman score runs/base --src newstest2014.en --ref newstest2014.de

        dragoman score --compare runs/old runs/new --data data/demo --html differences.html
    """
    from dragoman.decoding import terminal

    terminal.score(systems, source, reference, data, split, compare=compare, html=html, as_json=as_json)
