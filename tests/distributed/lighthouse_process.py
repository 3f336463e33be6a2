"""A lighthouse for tests."""

import os
import subprocess
import sys

from dragoman.worker_environment import SECRET

SERVE = """
from dragoman.launch import lighthouse
lighthouse.JOIN_MS = 1_000_000  # A quorum that waits for a worker by mistake is a test that hangs.
lighthouse.serve("127.0.0.1", 0)
"""


class Lighthouse:
    """A separate process: a lighthouse in this one would keep its connections open. The secret is `secret`."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", SERVE]
        environment = {**os.environ, "RUST_LOG": "error", SECRET: "secret"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        self.address = ("127.0.0.1", int(self._process.stdout.readline()))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
