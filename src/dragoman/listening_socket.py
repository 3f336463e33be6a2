"""Network ports that a server listens on."""

import socket

from dragoman.errors import DragomanError


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a TCP socket. Called before slow start-up work, so that a port in use is reported at once."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise DragomanError(
            f"Cannot listen on port {port} of {host} ({error.strerror}): stop the program that uses it, or choose "
            "another --port or --host."
        ) from None
    return listener


def url_to_open(host: str, port: int) -> str:
    """URL of a server for a browser. A server that listens on all addresses is reached by this machine's name."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
