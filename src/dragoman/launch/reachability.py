"""Find out at which of its addresses a host can be reached by other hosts. Runs in the agents."""

import secrets
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dragoman.authentication import AuthenticatedServer, Rejections, connect
from dragoman.launch import network_interfaces

CONNECT_S = 5.0
MAX_CONNECTIONS = 64


class IdentityServer:
    """Lets other hosts of the launch find out whether an address leads to this host.

    Private addresses, such as those of containers, exist on many hosts: a random name tells the hosts apart.
    """

    def __init__(self, secret: str) -> None:
        self._name = secrets.token_hex(8)
        self._server = AuthenticatedServer("", 0, secret, self._name, _close, Rejections())

    def describe(self) -> dict[str, Any]:
        """All that other hosts need to try to reach this one."""
        return {"port": self._server.port, "name": self._name, "addresses": network_interfaces.addresses()}

    def close(self) -> None:
        self._server.close()


def _close(connection: socket.socket) -> None:
    """The proof of the secret is the whole answer."""
    connection.close()


def reachable_addresses(peers: Mapping[str, dict[str, Any]], secret: str) -> dict[str, list[str]]:
    """For each peer, those of its addresses at which this host reaches its identity server."""
    attempts = [(name, address, peer) for name, peer in peers.items() for _, address in peer["addresses"]]
    with ThreadPoolExecutor(max_workers=MAX_CONNECTIONS) as pool:
        results = list(pool.map(lambda one: _reaches(one[1], one[2]["port"], secret, one[2]["name"]), attempts))
    reached: dict[str, list[str]] = {name: [] for name in peers}
    for (name, address, _), success in zip(attempts, results, strict=True):
        if success:
            reached[name].append(address)
    return reached


def _reaches(address: str, port: int, secret: str, name: str) -> bool:
    try:
        connect(address, port, secret, name, CONNECT_S).close()
    except OSError:
        return False
    return True
