"""Check of the Host header, against DNS rebinding.

A web page of a stranger can point its own host name at the address of this server. The browser then lets the page read
the answers, but still sends the stranger's host name.
"""

import ipaddress
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

ANY_NAME = "*"


class HostHeaderMiddleware:
    """Refuses requests for other hosts. `refuse` makes the response from the name in the header."""

    def __init__(self, app: ASGIApp, names: Collection[str], refuse: Callable[[str], ASGIApp]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for header in Headers(scope=scope).getlist("host"):
                name = host_name(header)
                if not is_allowed(name, self._names):
                    await self._refuse(name)(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def host_name(header: str) -> str:
    """The host in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower().removesuffix(".")


def is_allowed(name: str, names: Collection[str]) -> bool:
    """True for the given names, for localhost, and for every IP address: no DNS name is involved in these."""
    if name == "localhost" or name.endswith(".localhost") or name in names or ANY_NAME in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
