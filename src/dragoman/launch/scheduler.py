"""Worlds that others made: torchrun, Open MPI's mpirun and Slurm's srun each describe one in the environment."""

import os
import re
from collections.abc import Mapping

from dragoman.errors import DragomanError
from dragoman.launch.network_interfaces import interface_towards

FIRST_PORT = 20_000
PORTS = 10_000
"""Ports where the workers of a job may meet; its number chooses, so that jobs side by side do not."""


def join_world() -> None:
    """Describe this worker's place in its world as torchrun does, whoever made it, and find the way to the others."""
    os.environ.update(world_of(os.environ))
    workers, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    interface = interface_towards(os.environ["MASTER_ADDR"]) if workers > here and "MASTER_ADDR" in os.environ else None
    if interface is not None:
        # Left alone, gloo takes the interface of the host's name, which on many systems is the loopback.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def world_of(environment: Mapping[str, str]) -> dict[str, str]:
    """What has to be added to an environment so that it describes its world as torchrun does."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {}
    if "OMPI_COMM_WORLD_RANK" in environment:
        return _world_of_open_mpi(environment)
    if "SLURM_STEP_NUM_TASKS" in environment:  # Set by srun alone: a batch script is one process and no world.
        return _world_of_slurm(environment)
    return {}


def _world_of_open_mpi(environment: Mapping[str, str]) -> dict[str, str]:
    job = re.sub(r"\D", "", environment.get("PMIX_NAMESPACE", ""))
    return _world(
        environment,
        rank=environment["OMPI_COMM_WORLD_RANK"],
        world=environment["OMPI_COMM_WORLD_SIZE"],
        local_rank=environment["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world=environment["OMPI_COMM_WORLD_LOCAL_SIZE"],
        address=_address_of_mpirun(environment),
        job=int(job or 0),
    )


def _address_of_mpirun(environment: Mapping[str, str]) -> str | None:
    """Where mpirun runs, which is where its first worker runs unless a host file says otherwise."""
    found = re.search(r"tcp\d?://([\d.]+)", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    return found[1] if found else None


def _world_of_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    counts = expand_counts(environment["SLURM_STEP_TASKS_PER_NODE"])
    return _world(
        environment,
        rank=environment["SLURM_PROCID"],
        world=environment["SLURM_STEP_NUM_TASKS"],
        local_rank=environment["SLURM_LOCALID"],
        local_world=str(counts[int(environment["SLURM_NODEID"])]),
        address=first_host(environment["SLURM_STEP_NODELIST"]),
        job=int(environment["SLURM_JOB_ID"]),
    )


def _world(
    environment: Mapping[str, str],
    *,
    rank: str,
    world: str,
    local_rank: str,
    local_world: str,
    address: str | None,
    job: int,
) -> dict[str, str]:
    described = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_world}
    if "MASTER_ADDR" not in environment:
        # Workers of one machine meet there, wherever the scheduler itself runs.
        meeting = "127.0.0.1" if world == local_world else address
        if meeting is None:
            raise DragomanError(
                "It is not known where the workers shall meet: name the first host, as in "
                "`mpirun -x MASTER_ADDR=a ...`."
            )
        described["MASTER_ADDR"] = meeting
    if "MASTER_PORT" not in environment:
        described["MASTER_PORT"] = str(FIRST_PORT + job % PORTS)
    return described


def first_host(listing: str) -> str:
    """The first of Slurm's list of hosts: `node03` of `node[03-05,9],login`."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", listing)
    if match is None:
        raise DragomanError(f"'{listing}' is no list of hosts: set MASTER_ADDR to the name of the first.")
    return "".join(part or "" for part in match.groups())


def expand_counts(listing: str) -> list[int]:
    """Slurm's counts for each host: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in listing.split(","):
        number, _, times = part.partition("(x")
        counts += [int(number)] * int(times.rstrip(")") or 1)
    return counts
