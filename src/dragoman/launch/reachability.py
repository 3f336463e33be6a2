"""Find out at which of its addresses a host can be reached by other hosts. Runs in the agents."""

import contextlib
import secrets
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dragoman.launch import network_interfaces

CONNECT_S = 5.0
MAX_CONNECTIONS = 64


class IdentityServer:
    """Sends a random token to each client, which proves that the client reached this host and no other.

    Private addresses, such as those of containers, exist on many hosts.
    """

    def __init__(self) -> None:
        self._token = secrets.token_hex(8)
        family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._server = socket.create_server(
            ("", 0), family=family, backlog=128, dualstack_ipv6=family == socket.AF_INET6
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def describe(self) -> dict[str, Any]:
        """All that other hosts need to try to reach this one."""
        return {
            "port": self._server.getsockname()[1],
            "token": self._token,
            "addresses": network_interfaces.addresses(),
        }

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # Closed.
            while True:
                client, _ = self._server.accept()
                with client, contextlib.suppress(OSError):
                    client.sendall(self._token.encode())


def reachable_addresses(peers: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    """For each peer, those of its addresses at which this host reaches its identity server."""
    attempts = [(name, address, peer) for name, peer in peers.items() for _, address in peer["addresses"]]
    with ThreadPoolExecutor(max_workers=MAX_CONNECTIONS) as pool:
        results = list(pool.map(lambda one: _reaches(one[1], one[2]["port"], one[2]["token"].encode()), attempts))
    reached: dict[str, list[str]] = {name: [] for name in peers}
    for (name, address, _), success in zip(attempts, results, strict=True):
        if success:
            reached[name].append(address)
    return reached


def _reaches(address: str, port: int, token: bytes) -> bool:
    try:
        with socket.create_connection((address, port), timeout=CONNECT_S) as connection:
            return connection.makefile("rb").read(len(token)) == token
    except OSError:
        return False
