"""`dragoman launch`: a run on several machines over ssh."""

import sys
from typing import Annotated

import typer

from dragoman.commands.typer_app import (
    InterruptedByUserError,
    RemotePython,
    SshConfig,
    app,
    open_console,
)
from dragoman.errors import DragomanError


def launch(
    words: Annotated[list[str], typer.Argument(metavar="-- train RECIPE ...", help="What to run on all of them.")],
    hosts: Annotated[
        str, typer.Option("--hosts", help="Machines, as ssh knows them: a,b:2,user@c:4 (workers after the colon).")
    ],
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Go on without machines that are lost, and with those that come back.")
    ] = False,
    push: Annotated[bool, typer.Option("--push", help="Copy data set and recipe there first, with rsync.")] = False,
    ssh_config: SshConfig = None,
    python: RemotePython = sys.executable,
) -> None:
    """Train on several machines, reached by ssh.

    Before anything starts, all machines are compared; what differs is named with its remedy. The first keeps the run.
    Ctrl-C lets all end their step and save; the same command goes on, also with other machines.

    **Examples**

        dragoman launch --hosts a,b -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts a,b,c --elastic -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts localhost,big:4 --push -- train small --data data/own --out runs/own training.steps=9000
    """
    from dragoman.launch import ssh_launcher
    from dragoman.launch.launch_request import LaunchRequest
    from dragoman.launch.ssh import Client, parse_hosts
    from dragoman.recipe import resolve

    if words[0] != "train":
        raise DragomanError(
            f"launch runs train, not {words[0]}: write `dragoman launch --hosts a,b -- train RECIPE ...`."
        )
    given = typer.main.get_group(app).commands["train"].make_context("train", words[1:]).params
    if given["workers"] is not None:
        raise DragomanError(
            "--workers is for one machine: write the workers of each after its name, as in --hosts a:2,b:2."
        )
    overrides = given["overrides"] or []
    order = LaunchRequest(
        machines=parse_hosts(hosts), recipe=given["recipe"], data=given["data"], out=given["out"],
        overrides=overrides, settings=resolve(given["recipe"], overrides).settings, push=push,
        elastic=elastic,
    )  # fmt: skip
    try:
        reason = ssh_launcher.launch(order, Client(ssh_config, python), open_console())
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted before anything was started.") from None
    if reason == "diverged":
        raise typer.Exit(1)
