"""Join a world that torchrun, mpirun (Open MPI) or srun (Slurm) has made, as the environment describes it."""

import os
import re
from collections.abc import Mapping

from dragoman.errors import DragomanError
from dragoman.launch.network_interfaces import interface_towards

FIRST_PORT = 20_000
PORTS = 10_000
"""Range of rendezvous ports. The number of the job selects one, so that concurrent jobs use different ones."""


def join_world() -> None:
    """Set the variables that torchrun would set, and the network interface that leads to the other workers."""
    os.environ.update(torchrun_variables(os.environ))
    workers, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    interface = interface_towards(os.environ["MASTER_ADDR"]) if workers > here and "MASTER_ADDR" in os.environ else None
    if interface is not None:
        # By default gloo takes the interface of the host's name, which on many systems is the loopback.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to add to an environment so that it describes its world as torchrun does."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return {}
    if "OMPI_COMM_WORLD_RANK" in environment:
        return _open_mpi_variables(environment)
    if "SLURM_STEP_NUM_TASKS" in environment:  # Only srun sets it: a batch script is a single process.
        return _slurm_variables(environment)
    return {}


def _open_mpi_variables(environment: Mapping[str, str]) -> dict[str, str]:
    job = re.sub(r"\D", "", environment.get("PMIX_NAMESPACE", ""))
    return _variables(
        environment,
        rank=environment["OMPI_COMM_WORLD_RANK"],
        world=environment["OMPI_COMM_WORLD_SIZE"],
        local_rank=environment["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world=environment["OMPI_COMM_WORLD_LOCAL_SIZE"],
        address=_mpirun_address(environment),
        job=int(job or 0),
    )


def _mpirun_address(environment: Mapping[str, str]) -> str | None:
    """Address of mpirun, which is that of its first worker unless a host file says otherwise."""
    found = re.search(r"tcp\d?://([\d.]+)", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    return found[1] if found else None


def _slurm_variables(environment: Mapping[str, str]) -> dict[str, str]:
    counts = expand_counts(environment["SLURM_STEP_TASKS_PER_NODE"])
    return _variables(
        environment,
        rank=environment["SLURM_PROCID"],
        world=environment["SLURM_STEP_NUM_TASKS"],
        local_rank=environment["SLURM_LOCALID"],
        local_world=str(counts[int(environment["SLURM_NODEID"])]),
        address=first_host(environment["SLURM_STEP_NODELIST"]),
        job=int(environment["SLURM_JOB_ID"]),
    )


def _variables(
    environment: Mapping[str, str],
    *,
    rank: str,
    world: str,
    local_rank: str,
    local_world: str,
    address: str | None,
    job: int,
) -> dict[str, str]:
    variables = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_world}
    if "MASTER_ADDR" not in environment:
        # Workers of one machine meet there, even if the scheduler runs on another.
        rendezvous = "127.0.0.1" if world == local_world else address
        if rendezvous is None:
            raise DragomanError(
                "The address for the rendezvous of the workers is unknown: set MASTER_ADDR to the first host, as in "
                "`mpirun -x MASTER_ADDR=a ...`."
            )
        variables["MASTER_ADDR"] = rendezvous
    if "MASTER_PORT" not in environment:
        variables["MASTER_PORT"] = str(FIRST_PORT + job % PORTS)
    return variables


def first_host(listing: str) -> str:
    """The first host of a Slurm host list: `node03` of `node[03-05,9],login`."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", listing)
    if match is None:
        raise DragomanError(f"'{listing}' is not a Slurm host list: set MASTER_ADDR to the name of the first host.")
    return "".join(part or "" for part in match.groups())


def expand_counts(listing: str) -> list[int]:
    """Expand Slurm's counts per host: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in listing.split(","):
        number, _, times = part.partition("(x")
        counts += [int(number)] * int(times.rstrip(")") or 1)
    return counts
