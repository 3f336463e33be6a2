"""`dragoman config`: the settings of a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import AsJson, escape, open_console, print_json, split_arguments
from dragoman.errors import DragomanError


def show_config(
    recipe: Annotated[
        str | None, typer.Argument(help="A shipped recipe, or the path of a TOML file.", show_default=False)
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    openseq2seq: Annotated[
        Path | None,
        typer.Option(
            "--from-openseq2seq",
            metavar="FILE.py",
            help="Convert a configuration of OpenSeq2Seq to a recipe. The file is parsed and never run.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting of a recipe, with its value and its origin.

    With `--from-openseq2seq`, print a recipe instead, with a list of what has no counterpart.

    **Examples**

        dragoman config

        dragoman config transformer-base cleaning.max_words=100

        dragoman config --from-openseq2seq transformer-base.py > converted.toml
    """
    from dragoman.recipe import resolve, show_value

    if openseq2seq is not None:
        if recipe is not None:
            raise DragomanError(
                f"--from-openseq2seq converts a file as it is: leave out {recipe}, and edit the result."
            )
        _convert(openseq2seq, as_json)
        return
    arguments = [argument for argument in (recipe, *(overrides or [])) if argument is not None]
    resolved = resolve(*split_arguments(arguments))
    if as_json:
        print_json({row.key: {"value": row.value, "origin": row.origin} for row in resolved.listing()})
        return
    console = open_console()
    section = ""
    for row in resolved.listing():
        if row.key.partition(".")[0] != section:
            section = row.key.partition(".")[0]
            console.print(f"\n[bold]{section}[/bold]")
        value = escape(show_value(row.value))
        origin = row.origin if row.origin == "default" else f"[green]{escape(row.origin)}[/green]"
        console.print(f"  {row.key} = [bold]{value}[/bold]  [dim]{origin}[/dim]", highlight=False)
        console.print(f"      {escape(row.about)}", style="dim", highlight=False)


def _convert(path: Path, as_json: bool) -> None:
    """Print the recipe that an OpenSeq2Seq configuration becomes."""
    from dragoman.openseq2seq.conversion import convert
    from dragoman.openseq2seq.recipe_text import as_recipe, show_source_value

    conversion = convert(path)
    if not as_json:
        typer.echo(as_recipe(conversion), nl=False)
        return
    print_json(
        {
            "settings": conversion.settings(),
            "commands": conversion.commands,
            "mapped": {one.leaf.path: list(one.settings) or one.note for one in conversion.mapped},
            "without_counterpart": {
                one.leaf.path: {"value": show_source_value(one.leaf.value), "reason": one.note}
                for one in conversion.without_counterpart
            },
            "problems": conversion.problems(),
            "not_evaluated": conversion.skipped,
        }
    )
