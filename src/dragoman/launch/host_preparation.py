"""Bring all hosts to the point where workers can be started: connect, copy files, check, and choose addresses."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dragoman.code_version import dragoman_version
from dragoman.corpus.data_mixture import parse_all
from dragoman.corpus.evaluation_set import parse_evaluation
from dragoman.corpus.huggingface_folder import split_direction
from dragoman.errors import DragomanError
from dragoman.launch.agents import Agents
from dragoman.launch.launch_request import LaunchRequest, working_folder
from dragoman.launch.network_interfaces import Address
from dragoman.launch.preflight import (
    HostProblem,
    HostReport,
    HostsError,
    choose_addresses,
    clock_offsets,
    compare_clocks,
    compare_hosts,
    compare_versions,
    lost_problems,
    newest_checkpoint_host,
    settings_digest,
)
from dragoman.launch.ssh import SshClient
from dragoman.launch.worker_placement import WorkerPlacement


class SetupView(Protocol):
    """Where the progress of the set-up is shown."""

    @property
    def is_terminal(self) -> bool: ...

    def say(self, sentence: str) -> None: ...

    def warn(self, sentence: str) -> None: ...


class LinkCheck(Protocol):
    """Warns of a slow network before workers are started. Passed in, because it is a later stage than launching."""

    def __call__(
        self, request: LaunchRequest, agents: Agents, addresses: Mapping[str, Address], report: HostReport
    ) -> None: ...


@dataclass(frozen=True)
class Handshakes:
    """First replies of the hosts."""

    folders: dict[str, str]
    """Working folder of each host that can be used."""
    clock_offsets_s: dict[str, float]
    problems: list[HostProblem]


def connect(agents: Agents, hosts: Sequence[str], *, make_folder: bool = False) -> Handshakes:
    """Enter the working folder on all hosts, and compare their versions and clocks with this machine's."""
    sent_at_s = time.time()
    replies, lost = agents.request_all(
        hosts, "handshake", folder=working_folder(), make=make_folder, secret=agents.secret
    )
    offsets_s = clock_offsets({host: each["at_s"] for host, each in replies.items()}, sent_at_s, time.time())
    other_versions = compare_versions(dragoman_version(), {host: each["dragoman"] for host, each in replies.items()})
    unusable = {problem.host for problem in other_versions}
    folders = {host: str(each["folder"]) for host, each in replies.items() if host not in unusable}
    problems = [HostProblem(host, f"cannot be used: {reason}.") for host, reason in lost.items()]
    return Handshakes(folders, offsets_s, [*problems, *other_versions])


def find_addresses(agents: Agents, hosts: Sequence[str]) -> tuple[dict[str, Address], list[HostProblem]]:
    """Let every host try to connect to every other at all its addresses, and choose one for each."""
    peers, lost = agents.request_all(hosts, "open_identity_server")
    reached, lost_later = agents.request_each(
        {host: ("reach", {"peers": {name: peer for name, peer in peers.items() if name != host}}) for host in peers}
    )
    agents.send_all("close_servers")
    if lost or lost_later:
        return {}, lost_problems({**lost, **lost_later})
    return choose_addresses(
        {host: [(interface, address) for interface, address in peer["addresses"]] for host, peer in peers.items()},
        reached,
    )


def set_up_hosts(
    request: LaunchRequest, client: SshClient, agents: Agents, view: SetupView, check_links: LinkCheck
) -> WorkerPlacement:
    """Connect to all hosts, copy what `--push` asks for, and check that they are ready. Starts no worker."""
    hosts = request.hosts
    handshakes = connect(agents, hosts, make_folder=request.push)
    problems, usable = handshakes.problems, list(handshakes.folders)
    if not problems:
        _stop_earlier_launch(request, agents, view)
        if request.push:
            _push(request, client, handshakes.folders, view)
    reports, found = _probe(request, agents, usable)
    problems += found
    workers = {
        machine.name: machine.workers or reports[machine.name].gpus or 1
        for machine in request.machines
        if machine.name in reports
    }
    if reports:
        problems += compare_hosts(reports, workers, settings_digest(request.settings))
    addresses, found = find_addresses(agents, usable) if len(hosts) > 1 and usable == hosts else ({}, [])
    problems += found
    if problems:
        raise HostsError(sorted(problems, key=lambda problem: hosts.index(problem.host)))
    for problem in compare_clocks(handshakes.clock_offsets_s):
        view.warn(f"{problem.host} {problem.sentence}")
    if len(hosts) > 1:
        check_links(request, agents, addresses, reports[request.first])
    placement = WorkerPlacement(workers, addresses, newest_checkpoint_host(reports))
    if placement.newest not in (None, request.first):
        view.say(f"Copying the run from {placement.newest}, which has the newest checkpoint, to {request.first}.")
        _copy_run(request, client, agents, str(placement.newest), handshakes.folders)
    return placement


def _stop_earlier_launch(request: LaunchRequest, agents: Agents, view: SetupView) -> None:
    """Let an earlier launch of the same run save and exit, before the newest checkpoint is looked for."""
    replies, _ = agents.request_all(request.hosts, "stop_earlier", run=str(request.out))
    stopped = [host for host, reply in replies.items() if reply["stopped"]]
    if stopped:
        view.say(f"Stopped an earlier launch of {request.out} on {', '.join(stopped)}.")


def _probe(
    request: LaunchRequest, agents: Agents, hosts: Sequence[str]
) -> tuple[dict[str, HostReport], list[HostProblem]]:
    job = {
        "recipe": request.recipe,
        "overrides": list(request.overrides),
        "data": list(request.data),
        "also_evaluate": list(request.also_evaluate),
        "out": str(request.out),
        "elastic": request.elastic,
    }
    replies, lost = agents.request_all(hosts, "run_module", module="dragoman.launch.host_probe", job=job)
    problems = lost_problems(lost)
    problems += [
        HostProblem(host, f"cannot train: {reply['problem']}.") for host, reply in replies.items() if "problem" in reply
    ]
    return {host: HostReport(**reply) for host, reply in replies.items() if "problem" not in reply}, problems


def _push(request: LaunchRequest, client: SshClient, folders: Mapping[str, str], view: SetupView) -> None:
    """Copy the data sets, the other sets to evaluate on, the recipe if it is a file, and the model to begin with."""
    recipe, evaluated = Path(request.recipe), map(parse_evaluation, request.also_evaluate)
    sources = [
        *(part.path for part in parse_all(request.data)),
        *(path for files in evaluated for path in (files.source, files.reference)),
        *([recipe] if recipe.is_file() else []),
        *([] if request.start is None else [split_direction(request.start)[1]]),
    ]
    missing = [str(path) for path in sources if not path.exists()]
    if missing:
        raise DragomanError(f"--push: {' and '.join(missing)} does not exist on this machine. Check the path.")
    for machine in request.machines:
        for source in () if machine.is_local else sources:
            view.say(f"Copying {source} to {machine.name}")
            target = str(Path(folders[machine.name]) / source)
            client.push(machine, source, target, show_progress=view.is_terminal)


def _copy_run(
    request: LaunchRequest, client: SshClient, agents: Agents, source: str, folders: Mapping[str, str]
) -> None:
    """Stream a run from the host that has it, through this machine, to the first host."""
    runs = {host: str(Path(folders[host]) / request.out) for host in (source, request.first)}
    machines = {host: agents.by_host[host].machine for host in runs}
    sender = subprocess.Popen(
        client.module(machines[source], "dragoman.launch.run_transfer", "send", runs[source]), stdout=subprocess.PIPE
    )
    receiver = subprocess.run(
        client.module(machines[request.first], "dragoman.launch.run_transfer", "receive", runs[request.first]),
        stdin=sender.stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if sender.wait() or receiver.returncode:
        raise DragomanError(
            f"The run could not be copied from {source} to {request.first}: name {source} first in --hosts, or copy "
            f"{request.out} yourself."
        )
