"""An agent in its own process, used as the launcher uses it."""

import contextlib
import json
import subprocess
import sys
import time

import psutil


class AgentProcess:
    def __init__(self, silence_s: float = 30) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dragoman.launch.agent", str(silence_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def send(self, command: str, **arguments: object) -> None:
        self.process.stdin.write(json.dumps({"command": command, "id": 1, **arguments}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, object]:
        return json.loads(self.process.stdout.readline())

    def request(self, command: str, **arguments: object) -> dict[str, object]:
        self.send(command, **arguments)
        return self.receive()["result"]

    def start(self, *arguments: str, elastic: bool = False) -> None:
        """Start a worker as rank 0."""
        self.send("start", arguments=arguments, environments=[{"RANK": "0"}], run="run", elastic=elastic)

    def wait_for_worker(self) -> psutil.Process:
        """The process of its only worker, as soon as it runs `dragoman`."""
        return self._wait_for_child("dragoman")

    def wait_for_fork_server(self) -> psutil.Process:
        return self._wait_for_child("dragoman.launch.fork_server")

    def _wait_for_child(self, argument: str) -> psutil.Process:
        while True:
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if argument in child.cmdline():
                        return child
            time.sleep(0.01)

    def close(self) -> None:
        with self.process:
            self.process.kill()
