"""What to launch, and the place of each worker in the world."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.launch.network_interfaces import Address
from dragoman.launch.ssh import Machine
from dragoman.settings import Settings

HOST = "DRAGOMAN_HOST"
LIGHTHOUSES = "DRAGOMAN_LIGHTHOUSES"
"""The same as in `distributed.cluster`, which is not imported here: a launcher needs no torch."""


@dataclass(frozen=True)
class LaunchRequest:
    """A training command, and the machines to run it on."""

    machines: Sequence[Machine]
    recipe: str
    data: Path
    out: Path
    overrides: Sequence[str]
    settings: Settings
    """As this machine reads the recipe and the overrides."""
    push: bool = False
    elastic: bool = False
    """Whether the run continues without machines that are lost."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of `dragoman` for each worker."""
        return ["train", self.recipe, "--data", str(self.data), "--out", str(self.out), *self.overrides]

    @property
    def hosts(self) -> list[str]:
        return [machine.name for machine in self.machines]

    @property
    def first(self) -> str:
        """The host of rank 0, which writes the run."""
        return self.machines[0].name


@dataclass(frozen=True)
class HostPlacement:
    """The hosts that are ready, with their workers and addresses."""

    workers: Mapping[str, int]
    addresses: Mapping[str, Address]
    """Interface and address at which the other hosts reach each host; empty for a single host."""
    newest: str | None
    """The host that has the newest checkpoint."""

    def hosts_by_rank(self) -> dict[int, str]:
        hosts = [host for host, count in self.workers.items() for _ in range(count)]
        return dict(enumerate(hosts))

    def labels(self) -> dict[int, str]:
        """Name of each worker in the output: its host, and its rank where the host has several."""
        return {
            rank: host if self.workers[host] == 1 else f"{host} rank {rank}"
            for rank, host in self.hosts_by_rank().items()
        }

    def places(self, port: int) -> dict[str, list[dict[str, str]]]:
        """Environment variables for each worker of each host, as torchrun would set them."""
        world = sum(self.workers.values())
        rendezvous = next(iter(self.addresses.values()))[1] if self.addresses else "127.0.0.1"
        places: dict[str, list[dict[str, str]]] = {}
        rank = 0
        for host, count in self.workers.items():
            interface = self.addresses[host][0] if self.addresses else "lo"
            places[host] = [
                {
                    "RANK": str(rank + local_rank),
                    "WORLD_SIZE": str(world),
                    "LOCAL_RANK": str(local_rank),
                    "LOCAL_WORLD_SIZE": str(count),
                    "MASTER_ADDR": rendezvous,
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": interface,
                    "NCCL_SOCKET_IFNAME": interface,
                    HOST: host,
                }
                for local_rank in range(count)
            ]
            rank += count
        return places


def working_folder() -> str:
    """The current folder, relative to the home folder where it is below it: homes differ between machines."""
    here = Path.cwd()
    return f"~/{here.relative_to(Path.home())}" if here.is_relative_to(Path.home()) else str(here)
