"""What a launch was asked for, and how it found the machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dragoman.launch.network_interfaces import Address
from dragoman.launch.ssh import Machine
from dragoman.settings import Settings

HOST = "DRAGOMAN_HOST"
LIGHTHOUSES = "DRAGOMAN_LIGHTHOUSES"
"""As in `training.cluster`, which is not imported here: a launcher needs no torch."""


@dataclass(frozen=True)
class LaunchRequest:
    """What to train, and on which machines."""

    machines: Sequence[Machine]
    recipe: str
    data: Path
    out: Path
    overrides: Sequence[str]
    settings: Settings
    """As this machine reads the recipe and the overrides."""
    push: bool = False
    elastic: bool = False
    """Whether the run goes on without machines that are lost."""

    @property
    def words(self) -> list[str]:
        """What each worker is told."""
        return ["train", self.recipe, "--data", str(self.data), "--out", str(self.out), *self.overrides]

    @property
    def first(self) -> str:
        """The host whose first worker speaks for all, and which keeps the run."""
        return self.machines[0].name


@dataclass(frozen=True)
class HostPlacement:
    """The hosts as they were found: ready."""

    workers: Mapping[str, int]
    addresses: Mapping[str, Address]
    """For each host the interface and address by which the others reach it; empty where there are no others."""
    newest: str | None
    """Who has the newest checkpoint."""

    def labels(self) -> dict[int, str]:
        """What to call each worker: its host, and its rank where the host has several."""
        places = {int(place["RANK"]): host for host, places in self.worlds(0).items() for place in places}
        return {rank: host if self.workers[host] == 1 else f"{host} rank {rank}" for rank, host in places.items()}

    def worlds(self, port: int) -> dict[str, list[dict[str, str]]]:
        """Each host's places in the world, as torchrun would describe them."""
        world = sum(self.workers.values())
        meeting = next(iter(self.addresses.values()))[1] if self.addresses else "127.0.0.1"
        described: dict[str, list[dict[str, str]]] = {}
        rank = 0
        for host, count in self.workers.items():
            interface = self.addresses[host][0] if self.addresses else "lo"
            described[host] = [
                {
                    "RANK": str(rank + local_rank),
                    "WORLD_SIZE": str(world),
                    "LOCAL_RANK": str(local_rank),
                    "LOCAL_WORLD_SIZE": str(count),
                    "MASTER_ADDR": meeting,
                    "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": interface,
                    "NCCL_SOCKET_IFNAME": interface,
                    HOST: host,
                }
                for local_rank in range(count)
            ]
            rank += count
        return described


def home_folder() -> str:
    """Where this command was given, in a form that suits machines whose homes lie elsewhere."""
    here = Path.cwd()
    return f"~/{here.relative_to(Path.home())}" if here.is_relative_to(Path.home()) else str(here)
