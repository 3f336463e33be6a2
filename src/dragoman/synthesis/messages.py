"""Messages between the coordinator and a worker: a line of JSON, and the bytes that it announces."""

import contextlib
import json
import threading
from collections.abc import Callable
from typing import IO, Any

KEEPALIVE_S = 5.0
"""Interval of the messages by which each side knows that the other is there."""
SILENCE_S = 60.0
"""A side that has sent nothing for this long is lost."""
Message = dict[str, Any]


class MessageWriter:
    """Sends messages of several threads."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, kind: str, content: bytes = b"", **facts: Any) -> None:
        """Send a message. Raises OSError or ValueError if the other side is gone."""
        head = json.dumps({"kind": kind, "content_bytes": len(content), **facts}).encode()
        with self._lock:
            self._stream.write(head + b"\n" + content)
            self._stream.flush()


def receive(stream: IO[bytes], other_output: Callable[[str], None]) -> tuple[Message, bytes] | None:
    """The next message and its content; None at the end. Other lines, such as a login banner, are passed on."""
    while line := stream.readline():
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and "kind" in message:
                content = stream.read(message["content_bytes"])
                return (message, content) if len(content) == message["content_bytes"] else None
        other_output(line.decode(errors="replace").rstrip())
    return None
