"""`dragoman report`: the report of one or more runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.typer_app import AsJson, escape, open_console, print_json

if TYPE_CHECKING:
    from rich.console import Console


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories. Several are compared.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file (default: report.html in the run directory).")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the answers as Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a report of a run as one self-contained HTML file: its curves, what limits it, eleven answers.

    **Examples**

        dragoman report runs/base

        dragoman report runs/base runs/bf16 --out comparison.html

        dragoman report runs/base --markdown > notes.md
    """
    from dragoman.insight.report_writer import summarize_run, to_markdown

    if as_json:
        summaries = [summarize_run(run) for run in runs]
        print_json(summaries[0] if len(summaries) == 1 else summaries)
    elif markdown:
        typer.echo("\n".join(to_markdown(summarize_run(run)) for run in runs), nl=False)
    else:
        write_report(runs, out, open_console())


def write_report(runs: Sequence[Path], out: Path | None, console: "Console") -> None:
    """Write the HTML report, and print its headlines and its path."""
    from dragoman.insight.report_writer import REPORT_FILE, summarize_run, write_html

    summaries = [summarize_run(run) for run in runs]
    path = out or runs[0] / REPORT_FILE
    write_html(summaries, path)
    for summary in summaries:
        prefix = "" if len(summaries) == 1 else f"{summary['run']}: "
        for headline in summary["headlines"]:
            console.print(escape(prefix + headline), highlight=False)
    console.print(f"Report: {escape(str(path))}", highlight=False, soft_wrap=True)
