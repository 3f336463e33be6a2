"""`dragoman config`: the settings of a recipe."""

from typing import Annotated

import typer

from dragoman.commands.typer_app import AsJson, complete_recipe, escape, open_console, print_json, split_arguments


def show_config(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A shipped recipe, or the path of a TOML file.", autocompletion=complete_recipe, show_default=False
        ),
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings as key=value.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting of a recipe, with its value and its origin.

    **Examples**

        dragoman config

        dragoman config transformer-base cleaning.max_words=100
    """
    from dragoman.recipe import resolve, show_value

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
