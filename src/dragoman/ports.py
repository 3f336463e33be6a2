"""Network ports of this machine that a server listens on."""

import socket

from dragoman.errors import DragomanError


def bind(host: str, port: int) -> socket.socket:
    """Take a port before anything else is done: if it is in use already, that shows at once."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise DragomanError(
            f"Port {port} on {host} cannot be used ({error.strerror}): end what uses it, or choose another --port or "
            "--host."
        ) from None
    return listening


def shown(host: str, port: int) -> str:
    """The address that people open: a server that listens everywhere is reached by this machine's name."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
