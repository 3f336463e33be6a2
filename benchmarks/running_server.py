"""A running server for benchmarks, and the fields of a request to it."""

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from benchmarks.command_line import dragoman_command

TIMEOUT_S = 120.0


@contextlib.asynccontextmanager
async def serving(model: Path) -> AsyncIterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A server in its own process: its URL, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(dragoman_command("serve", model, "--port", str(port), "--timeout", str(TIMEOUT_S)))
    try:
        async with httpx.AsyncClient() as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    await client.get(f"http://127.0.0.1:{port}/health")
                    break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def fields(text: str) -> dict[str, str]:
    return {"q": text, "source": "en", "target": "de"}
