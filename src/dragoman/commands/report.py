"""`dragoman report`: the report of one or more runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman import pipeline
from dragoman.commands.typer_app import AsJson, escape, open_console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.pipeline import Report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories. Several are compared.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file (default: report.html in the run directory).")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the answers as Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a report of a run as one self-contained HTML file: how it goes, what limits it, what to do.

    The folder of a distillation gives sizes, speeds, and the ledger of the quality that was lost.

    Several runs are compared: settings, data, machines, speed, quality, whether the difference in BLEU is significant,
    and which run to prefer at which cost.

    **Examples**

        dragoman report runs/base

        dragoman report runs/base runs/bf16 --out comparison.html

        dragoman report runs/base --markdown > notes.md
    """
    from dragoman.insight.distillation_report import is_distillation

    if len(runs) == 1 and is_distillation(runs[0]):
        _report_distillation(runs[0], out, markdown=markdown, as_json=as_json)
    elif as_json:
        content = _read(runs).content
        print_json(content["runs"][0] if content["comparison"] is None else content)
    elif markdown:
        typer.echo(_read(runs).markdown, nl=False)
    else:
        write_report(runs, out, open_console())


def write_report(runs: Sequence[Path], out: Path | None, console: "Console") -> None:
    """Write the HTML report, and print its overview and its path."""
    from dragoman.insight.report_writer import REPORT_FILE

    read = _read(runs)
    content, path = read.content, out or runs[0] / REPORT_FILE
    read.write_html(path)
    if content["comparison"] is None:
        _print_overview(content["runs"][0], console)
    else:
        _print_comparison(content["comparison"], console)
        for summary in content["runs"]:
            console.print(f"\n[bold]{escape(summary['run'])}[/bold]", highlight=False)
            _print_overview(summary, console)
    console.print(f"Report: {escape(str(path))}", highlight=False, soft_wrap=True)


def _report_distillation(folder: Path, out: Path | None, *, markdown: bool, as_json: bool) -> None:
    from dragoman.insight.distillation_report import describe, read_distillation, to_markdown, write_page
    from dragoman.insight.report_writer import REPORT_FILE

    content = read_distillation(folder)
    if as_json:
        print_json(content)
    elif markdown:
        typer.echo(to_markdown(content), nl=False)
    else:
        path = out or folder / REPORT_FILE
        write_page(content, path)
        console = open_console()
        console.print(escape(describe(content)), highlight=False)
        console.print(f"Report: {escape(str(path))}", highlight=False, soft_wrap=True)


def _read(runs: Sequence[Path]) -> "Report":
    with open_console(stderr=True, optional=True).status(
        "Reading the runs" if len(runs) == 1 else "Comparing the runs"
    ):
        return pipeline.report(*runs)


def _print_overview(summary: dict[str, Any], console: "Console") -> None:
    from dragoman.insight.report_writer import SENTENCES, describe_time_use

    overview = summary["overview"]
    for key, label in SENTENCES.items():
        console.print(f"[bold]{label}:[/bold] {escape(overview[key])}", highlight=False)
    for warning in overview["more"]:
        console.print(escape(warning), highlight=False)
    console.print(escape(describe_time_use(summary)), highlight=False)


def _print_comparison(comparison: dict[str, Any], console: "Console") -> None:
    from dragoman.terminal import table

    console.print(f"[bold]{escape(comparison['preference'])}[/bold]\n", highlight=False)
    for each in comparison["topics"]:
        console.print(f"[bold]{each['topic']}:[/bold] {escape(each['text'])}", highlight=False)
    rows = table("", *map(escape, comparison["runs"]), right=tuple(range(1, len(comparison["runs"]) + 1)))
    for row in (*comparison["rows"], *comparison["settings"]):
        rows.add_row(escape(row["name"]), *map(escape, row["values"]))
    console.print()
    console.print(rows)
