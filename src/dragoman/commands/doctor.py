"""`dragoman doctor`: benchmark machines and links, and estimate a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    AsJson,
    RemotePython,
    SshConfig,
    open_console,
    print_json,
    split_arguments,
)


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
    python: RemotePython = sys.executable,
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

    named, overrides = split_arguments(words or [])
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
