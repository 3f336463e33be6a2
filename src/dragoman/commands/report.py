"""`dragoman report`: the report of one or more runs."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    AsJson,
    open_console,
    print_json,
)


def report(
    runs: Annotated[list[Path], typer.Argument(help="A run; more than one to compare them.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default report.html in the run's folder.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the answers as Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what happened in a run and what limited it: one HTML file that needs nothing else.

    **Examples**

        dragoman report runs/base

        dragoman report runs/base runs/bf16 --out comparison.html

        dragoman report runs/base --markdown > notes.md
    """
    from dragoman.insight import report_writer as reports

    if as_json:
        contents = [reports.read_digest(run) for run in runs]
        print_json(contents[0] if len(contents) == 1 else contents)
    elif markdown:
        typer.echo("\n".join(reports.as_markdown(reports.read_digest(run)) for run in runs), nl=False)
    else:
        reports.report(runs, out, open_console())
