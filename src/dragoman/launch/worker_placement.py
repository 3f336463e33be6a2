"""The placement of workers on hosts, and the environment variables of each worker."""

from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.launch.network_interfaces import Address
from dragoman.relay import LOOPBACK
from dragoman.worker_environment import ADDRESS, HOST


@dataclass(frozen=True)
class WorkerPlacement:
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

    def address(self, host: str) -> str:
        """Address at which the workers of other hosts reach a host; the loopback address of a single host."""
        return self.addresses[host][1] if self.addresses else LOOPBACK

    def environments(self, port: int) -> dict[str, list[dict[str, str]]]:
        """Environment variables for each worker of each host, as torchrun would set them."""
        world = sum(self.workers.values())
        rendezvous = self.address(next(iter(self.workers)))
        environments: dict[str, list[dict[str, str]]] = {}
        rank = 0
        for host, count in self.workers.items():
            interface = self.addresses[host][0] if self.addresses else "lo"
            environments[host] = [
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
                    ADDRESS: self.address(host),
                }
                for local_rank in range(count)
            ]
            rank += count
        return environments
