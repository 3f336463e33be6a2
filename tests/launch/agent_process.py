"""An agent in its own process, used as the launcher uses it."""

import json
import subprocess
import sys


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

    def close(self) -> None:
        with self.process:
            self.process.kill()
