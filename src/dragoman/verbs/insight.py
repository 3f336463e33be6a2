"""What will limit a run, what limits it, and what there is: before, while and after training."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import AsJson, PythonThere, SshConfig, escape, open_console, print_json
from dragoman.errors import DragomanError


def doctor(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [key=value]...", help="What is to be trained; by default transformer-base."),
    ] = None,
    hosts: Annotated[str, typer.Option("--hosts", help="Machines, as for launch; by default this one.")] = "localhost",
    data: Annotated[
        Path | None, typer.Option("--data", help="Try it with sentences as long as this data set's; else as news.")
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", help="Answer for other machines too: link=1gbit,hosts=4,exchange=bf16"),
    ] = None,
    ssh_config: SshConfig = None,
    python: PythonThere = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Before the money is spent: measure these machines, and say how long a recipe will take and what limits it.

    Ends with exit code 1 where the plan is not sensible: where most of the time would be spent waiting, or one machine
    alone would be faster.

    **Examples**

        dragoman doctor tiny

        dragoman doctor --hosts a,b transformer-base --data data/wmt16

        dragoman doctor --hosts a,b transformer-base --what-if link=1gbit --what-if hosts=4,exchange=bf16
    """
    from dragoman.corpus.dataset import DataSet
    from dragoman.doctor import consultation as doctors
    from dragoman.launch.ssh import Client, parse_hosts
    from dragoman.recipe import resolve

    named, overrides = _sort_out(words or [])
    recipe = named or "transformer-base"
    settings = resolve(recipe, overrides).settings
    client = Client(ssh_config, python)
    exercise = doctors.exercise_on(DataSet(data) if data else None, recipe, overrides)
    found, diagnoses = doctors.consult(parse_hosts(hosts), exercise, settings, client, what_if or [])
    if as_json:
        print_json(doctors.as_json(found, diagnoses, settings))
    else:
        doctors.show(found, diagnoses, settings, open_console())
    if not diagnoses[""].sensible:
        raise typer.Exit(1)


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


def watch(
    runs: Annotated[list[Path], typer.Argument(help="Runs to show, beside each other.", show_default=False)],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine's own need a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8090,
) -> None:
    """Show running or finished runs on a live page.

    The page belongs to the reader: closing it, or ending this command, does not touch the training.

    **Examples**

        dragoman watch runs/base

        dragoman watch runs/base runs/bf16 --host 0.0.0.0 --port 8090
    """
    from dragoman.insight.live_server import serve

    serve(runs, host, port, open_console())


def inspect(
    path: Annotated[Path, typer.Argument(help="A data set, a run, a checkpoint or an export.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what a data set, a run, a checkpoint or an export is made of, with sizes.

    **Examples**

        dragoman inspect data/demo

        dragoman inspect runs/demo/run/checkpoints/last
    """
    from dragoman.corpus.dataset import MANIFEST_FILE

    if (path / MANIFEST_FILE).exists():
        from dragoman.corpus import dataset_summary
        from dragoman.corpus.dataset import DataSet

        data = DataSet(path)
        dataset_summary.show(data, open_console()) if not as_json else print_json(dataset_summary.as_json(data))
        return
    from dragoman.decoding.ctranslate2_translator import CARD_FILE, DESCRIPTION_FILE

    if (path / CARD_FILE).exists() and (path / DESCRIPTION_FILE).exists():
        from dragoman.decoding import terminal

        if as_json:
            print_json({"export": str(path), "files": terminal.file_sizes(path)})
        else:
            terminal.show_files(path, open_console())
    else:
        from dragoman.training.run_contents import as_json as summarise
        from dragoman.training.run_contents import show

        show(path, open_console()) if not as_json else print_json(summarise(path))


def show_config(
    recipe: Annotated[
        str | None, typer.Argument(help="A shipped recipe or the path of a TOML file.", show_default=False)
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Show every setting of a recipe, with its value and where that came from.

    **Examples**

        dragoman config

        dragoman config transformer-base cleaning.max_words=100
    """
    from dragoman.recipe import resolve, show_value

    resolved = resolve(*_sort_out([word for word in (recipe, *(overrides or [])) if word is not None]))
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


def _sort_out(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The recipe among the words, if there is one, and the settings."""
    recipes = [word for word in words if "=" not in word]
    if len(recipes) > 1:
        raise DragomanError(f"One recipe at a time, not {' and '.join(recipes)}: settings are written key=value.")
    return (recipes[0] if recipes else None), [word for word in words if "=" in word]
