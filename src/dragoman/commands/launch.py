"""`dragoman launch`: train on several machines over ssh."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.next_commands import TRAINED, show_after_training
from dragoman.commands.typer_app import (
    InterruptedByUserError,
    RemotePython,
    SshConfig,
    app,
    complete_recipe,
    open_console,
)
from dragoman.errors import EXIT_RESUMABLE, DragomanError

if TYPE_CHECKING:
    from dragoman.launch.agents import Agents
    from dragoman.launch.host_output import HostOutput
    from dragoman.launch.host_preparation import LinkCheck
    from dragoman.launch.launch_request import LaunchRequest
    from dragoman.launch.network_interfaces import Address
    from dragoman.launch.preflight import HostReport


def launch(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- train RECIPE ...", help="Command to run on all hosts.", autocompletion=complete_recipe
        ),
    ],
    hosts: Annotated[
        str, typer.Option("--hosts", help="Hosts as ssh knows them, with workers after the colon: a,b:2,user@c:4.")
    ],
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Continue when machines are lost, and let them rejoin.")
    ] = False,
    push: Annotated[
        bool, typer.Option("--push", help="Copy data set, recipe and --from model to the hosts first (rsync).")
    ] = False,
    ssh_config: SshConfig = None,
    python: RemotePython = sys.executable,
) -> None:
    """Train on several machines over ssh.

    All hosts are checked before anything starts, and every problem is reported with a remedy. The first host keeps
    the run. Ctrl-C saves a checkpoint; the same command resumes, also with other hosts.

    **Examples**

        dragoman launch --hosts a,b -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts a,b,c --elastic -- train transformer-base --data data/wmt16 --out runs/base

        dragoman launch --hosts localhost,big:4 --push -- train small --data data/own --out runs/own training.steps=9000
    """
    from dragoman.launch import ssh_launcher
    from dragoman.launch.host_output import HostOutput
    from dragoman.launch.launch_request import LaunchRequest
    from dragoman.launch.ssh import SshClient, parse_hosts
    from dragoman.recipe import resolve

    if command[0] != "train":
        raise DragomanError(
            f"launch cannot run {command[0]}, only train: write `dragoman launch --hosts a,b -- train RECIPE ...`."
        )
    given = typer.main.get_group(app).commands["train"].make_context("train", command[1:]).params
    if given["workers"] is not None:
        raise DragomanError(
            "--workers is for a single machine: give the number of workers for each host, as in --hosts a:2,b:2."
        )
    machines = parse_hosts(hosts)
    if given["as_json"]:
        raise DragomanError(
            "launch has no --json: leave it out, and run "
            f"`dragoman report {given['out']} --json` on {machines[0].name} afterwards."
        )
    overrides = given["overrides"] or []
    request = LaunchRequest(
        machines=machines, recipe=given["recipe"], data=list(map(str, given["data"])), out=given["out"],
        overrides=overrides, settings=resolve(given["recipe"], overrides).settings, push=push,
        also_evaluate=given["also_evaluate"] or [], elastic=elastic, start=given["start"],
    )  # fmt: skip
    view = HostOutput(open_console(), request.settings)
    try:
        reason = ssh_launcher.launch(request, SshClient(ssh_config, python), view, _link_check(view))
    except KeyboardInterrupt:
        raise InterruptedByUserError("interrupted before any worker was started.") from None
    if reason in TRAINED:
        show_after_training(request.out, request.settings, f" on {request.machines[0].name}")
    if reason == "diverged":
        raise typer.Exit(1)
    if reason == "interrupted":
        raise typer.Exit(EXIT_RESUMABLE)


def _link_check(view: "HostOutput") -> "LinkCheck":
    def check(
        request: "LaunchRequest", agents: "Agents", addresses: "Mapping[str, Address]", report: "HostReport"
    ) -> None:
        """Warn where most of the time would be spent on communication."""
        from dragoman.doctor.measure_and_estimate import check_links

        found = check_links(request, agents, addresses, report, view.say)
        if found is not None:
            for sentence in (found.summary, *found.limits):
                view.warn(sentence)
            for remedy in found.remedies:
                view.warn(f"  faster: {remedy}")
            view.say("Training starts anyway; Ctrl-C stops it.")

    return check
