"""`dragoman distill`: a small student from a large teacher."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.command_line import command_line
from dragoman.commands.next_commands import show_next_commands
from dragoman.commands.synthesize import ScoreBackWith
from dragoman.commands.typer_app import (
    AsJson,
    InterruptedByUserError,
    LocalWorkers,
    complete_recipe,
    escape,
    only_json,
    open_console,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from dragoman.distillation.distiller import Distillation, PartStart

TeacherPath = Annotated[
    str, typer.Argument(help="Run, checkpoint, export, or folder of OPUS-MT, M2M100 or NLLB.", show_default=False)
]
MoreText = Annotated[
    list[Path] | None,
    typer.Option("--text", help="More text of the source language, for the teacher to translate. Repeatable."),
]
StudentRecipe = Annotated[
    str, typer.Option("--recipe", help="Recipe of the student, or a TOML file.", autocompletion=complete_recipe)
]


def distill(
    teacher: TeacherPath,
    data: Annotated[Path, typer.Option("--data", help="A prepared data set.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for all parts. Resumes if it exists.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    text: MoreText = None,
    recipe: StudentRecipe = "student",
    beam: Annotated[
        int | None, typer.Option(min=1, max=256, help="Beam of the teacher (default: its own).", show_default=False)
    ] = None,
    score_back_with: ScoreBackWith = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also train the same student without a teacher, and compare both.")
    ] = False,
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines that translate, as ssh knows them: a,b (default: this one).")
    ] = "",
    workers: LocalWorkers = None,
    as_json: AsJson = False,
) -> None:
    """Train a small, fast student on what a teacher translates, and report where BLEU was lost.

    The teacher translates the source side of the data set, and more text if there is some (`synthesize`). The result is
    prepared, the student is trained on it and exported in int8. Validation and test set stay the real ones.

    Each part is a folder in --out. The same command skips what is complete and resumes what was begun, also after kill
    -9. A folder synthetic, data or run that you put there yourself is used as it is.

    **Examples**

        dragoman distill runs/base --data data/wmt16 --out students/base

        dragoman distill models/opus-mt-en-de --data data/own --text more.en --recipe student-tiny --out students/own

        dragoman distill runs/en-de --data data/wmt16 --score-back-with runs/de-en --out students/scored

        dragoman distill runs/base --data data/wmt16 --out students/base --compare money.price_per_hour=2.1
    """
    from dragoman.distillation.distiller import distill as run_distillation

    notes = open_console(stderr=True, optional=True)
    try:
        with only_json(as_json):
            made = run_distillation(
                teacher, data, out, recipe=recipe, text=text or (), settings=overrides or [], beam=beam,
                score_back_with=score_back_with, compare=compare, hosts=[hosts] if hosts else (), workers=workers,
                on_part=lambda part: _announce(part, notes),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted: run the same command again to resume.") from None
    if as_json:
        print_json(made.content)
        return
    show_distillation(made, open_console())
    commands = {
        command_line("report", out): "write the tables as one HTML file",
        command_line("translate", made.model): "translate with the student",
        command_line("report", out / "run"): "the student's training",
    }
    show_next_commands(commands, open_console(optional=True))


def _announce(part: "PartStart", console: "Console") -> None:
    """Print which part comes now, and what the parts before it took."""
    from dragoman.number_format import span

    states = {"to do": "", "begun": ", resumed", "complete": ", complete", "own": ", your own folder"}
    spent = f"  {span(part.seconds_so_far)} so far" if part.seconds_so_far else ""
    if part.cost_so_far is not None:
        spent += f", {part.cost_so_far:.2f} {part.currency}"
    if part.state in ("to do", "begun"):  # Of other parts there is nothing to measure.
        spent += f"  {part.left}"
        if part.total_cost is not None and part.left.known_s:
            spent += f", {part.total_cost:.2f} {part.currency} in total"
    console.print(
        f"\n[bold]Part {part.number} of {part.parts}: {part.name}{states[part.state]}[/bold]{spent}\n"
        f"[dim]{escape(part.command)}[/dim]",
        highlight=False,
        soft_wrap=True,
    )


def show_distillation(made: "Distillation", console: "Console") -> None:
    """Print the tables of a distillation."""
    from dragoman.insight import distillation_report as report
    from dragoman.terminal import table

    console.print(f"\n[bold]{escape(report.describe(made.content))}[/bold]\n", highlight=False)
    for columns, rows, right in (
        (report.SYSTEM_COLUMNS, report.system_rows(made.content), (1, 2, 3, 4, 5)),
        (report.LEDGER_COLUMNS, report.ledger_rows(made.content), (1,)),
        (report.PART_COLUMNS, report.part_rows(made.content), (1, 2)),
    ):
        shown = table(*columns, right=right)
        for row in rows:
            shown.add_row(*map(escape, row))
        console.print(shown)
        console.print()
    console.print(escape(report.describe_measurement(made.content)), highlight=False, style="dim")
