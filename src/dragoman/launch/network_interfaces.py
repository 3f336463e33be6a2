"""Addresses of this machine, and the interface that leads to another machine."""

import ipaddress
import socket
from collections.abc import Iterator

import psutil

Address = tuple[str, str]
"""An interface, and an address on it."""


def addresses() -> list[Address]:
    """Addresses at which other machines may reach this one: fastest interface first, IPv4 before IPv6."""
    speeds = {name: stats.speed for name, stats in psutil.net_if_stats().items() if stats.isup}
    found = [(name, address) for name, address in _all_addresses() if name in speeds and _is_external(address)]
    return sorted(found, key=lambda item: (":" in item[1], -speeds[item[0]]))


def interface_towards(host: str) -> str | None:
    """The interface that leads to a host; None if the host is unknown or is this machine."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # A datagram socket sends nothing: the kernel only looks up the route.
            local = str(probe.getsockname()[0])
    except OSError:
        return None
    return next((name for name, address in _all_addresses() if address == local and _is_external(address)), None)


def _all_addresses() -> Iterator[Address]:
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                yield name, entry.address.partition("%")[0]


def _is_external(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local)
